"""Samples of a worker -> what it waited for most, in words, with the remedy.

Promises: pure: the same samples, the same verdict; rules are those of docs/verdicts.md, in that order, the first that
holds is said; a run that is too short is told nothing.
Knows nothing of: files, processes, who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowmill.diagnose.rules import STATIONS, judge
from rowmill.diagnose.signs import Signs, signs_of
from rowmill.events import Began, EngineReady, Verdict
from rowmill.telemetry import Sample

__all__ = ["STATIONS", "Signs", "signs_of", "verdict"]


def verdict(
    samples: Sequence[tuple[float, Sample]],
    *,
    engine: EngineReady | None = None,
    began: Began | None = None,
) -> Verdict | None:
    """What one worker waited for most, so far; None where it was given no sample, or asked nothing.

    Args:
        samples: (seconds since it began, sample), in order.
        engine: what its engine is like.
        began: what its machine is like.
    """
    if not samples or not samples[-1][1].rows_fed:
        return None
    return judge(signs_of(samples, engine, began))
