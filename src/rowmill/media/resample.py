"""Samples -> the same sound at another rate.

Promises: what the new rate cannot hold is filtered out first; memory does not grow with what two rates have in common.
Knows nothing of: files.
Memory: the result, and tens of MB.
Source: a windowed sinc with the numbers of torchaudio's `functional.resample` (width 6, rolloff 0.99, Hann window), which vLLM
0.32 resamples by where torchaudio is installed: models are shown about the same either way.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Signal = npt.NDArray[np.float32]
_ZEROS = 6
"""Zero crossings of the sinc, to each side."""
_ROLLOFF = 0.99
"""Share of the frequencies that stays: the filter is not infinitely steep."""
_AT_ONCE, _LEAST_ROWS = 1 << 16, 64
"""Samples that stay in a core's cache while all filters go over them."""


def resampled(samples: Signal, rate: int, new_rate: int) -> Signal:
    """One channel at `new_rate` samples a second, a sample begun counting as one."""
    shared = math.gcd(rate, new_rate)
    old, new = rate // shared, new_rate // shared
    if old == new:
        return samples
    scale = min(old, new) * _ROLLOFF / old
    width = math.ceil(_ZEROS / scale)
    padded = np.pad(samples, (width, width + old))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * width + 1)
    found = np.empty(-(-len(samples) * new // old), np.float32)
    # Outputs that are `new` apart lie at the same place between two inputs, and have one filter.
    places = np.arange(min(new, len(found))) * old
    filters = _filters(places % new / new, width, scale)
    rows = max(_LEAST_ROWS, _AT_ONCE // old)
    for first in range(0, len(found), rows * new):
        some, begin = found[first : first + rows * new], first // new * old
        for phase, at in enumerate((places // new).tolist()):
            own = some[phase::new]
            np.matmul(windows[begin + at :: old][: len(own)], filters[phase], out=own)
    return found


def _filters(after: npt.NDArray[np.float64], width: int, scale: float) -> Signal:
    """Weights of the inputs around outputs that lie so far `after` one of them: a row for each output."""
    away = np.arange(-width, width + 1) - after[:, None]
    t = np.clip(away * scale, -_ZEROS, _ZEROS)
    window = np.cos(t * np.pi / _ZEROS / 2) ** 2
    return np.asarray(np.sinc(t) * window * scale, np.float32)
