"""Samples -> the same sound at another rate.

Promises: what the new rate cannot hold is filtered out first; how long the result is depends on lengths and rates alone.
Knows nothing of: files.
Memory: the result, and what soxr needs for it.
Source: soxr 1.0 and later, its default quality, which librosa resamples by too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rowmill.errors import MissingExtra

Signal = npt.NDArray[np.float32]


def resampled(samples: Signal, rate: int, new_rate: int) -> Signal:
    """One channel at `new_rate` samples a second, a sample begun counting as one.

    Raises:
        MissingExtra: soxr is not installed.
    """
    if rate == new_rate:
        return samples
    try:
        import soxr
    except ImportError as error:
        raise MissingExtra(what="`soxr`", extra="media") from error
    # soxr rounds to the nearest length: by that, tokens that were counted beforehand could be one too many.
    found = np.zeros(-(-len(samples) * new_rate // rate), np.float32)
    told: Signal = soxr.resample(samples, rate, new_rate)[: len(found)]
    found[: len(told)] = told
    return found
