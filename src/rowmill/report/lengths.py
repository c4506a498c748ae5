"""Many whole numbers -> how often each came: exact shares, middles and bars for a histogram.

Promises: counts are exact, whatever the order; bars hold every value once.
Knows nothing of: rows, plots.
Memory: 8 bytes for each value up to the largest, 8 MiB at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

LARGEST = 2**20 - 1
"""Values above are counted with it; the greatest one and the sum stay exact."""
STEPS = (1, 2, 5)
TAIL_SHARE = 0.005
"""The last bar takes so many of the values at most, however far they reach."""


class Bin(msgspec.Struct, frozen=True):
    """Values from `low` to below `stop`."""

    low: int
    stop: int | None
    """None: and all that are greater."""
    rows: int


class Lengths:
    """How often each length came."""

    def __init__(self) -> None:
        self._counts = np.zeros(64, np.int64)
        self.rows = self.total = self.longest = 0

    def add(self, lengths: npt.NDArray[np.int64]) -> None:
        """Count more."""
        if not len(lengths):
            return
        self.rows += len(lengths)
        self.total += int(lengths.sum())
        self.longest = max(self.longest, int(lengths.max()))
        found = np.bincount(np.minimum(lengths, LARGEST))
        if len(found) > len(self._counts):
            more = min(2 * len(found), LARGEST + 1) - len(self._counts)
            self._counts = np.pad(self._counts, (0, more))
        self._counts[: len(found)] += found

    def copy(self) -> Lengths:
        """The same, to count on apart."""
        copied = Lengths()
        copied._counts = self._counts.copy()
        copied.rows, copied.total, copied.longest = self.rows, self.total, self.longest
        return copied

    @property
    def mean(self) -> float:
        """The mean length; 0 of none."""
        return self.total / self.rows if self.rows else 0.0

    def below(self, share: float) -> int:
        """The least length that so many are no longer than."""
        if not self.rows:
            return 0
        return int(np.searchsorted(np.cumsum(self._counts), share * self.rows))

    def bins(self, most: int) -> list[Bin]:
        """At most `most` + 1 bars of one width, a round number; the last takes what is far out."""
        if not self.rows:
            return []
        end = max(self.below(1 - TAIL_SHARE), self.below(0.5)) + 1
        width = round_step(end / most)
        stops = range(width, width * (-(-end // width)) + 1, width)
        bars = [Bin(stop - width, stop, 0) for stop in stops]
        if self.longest >= stops[-1]:
            bars.append(Bin(stops[-1], None, 0))
        return self.bins_as(bars)

    def bins_as(self, bins: Sequence[Bin]) -> list[Bin]:
        """The same bars as others; what is beyond them is in the last."""
        upto = np.concatenate(([0], np.cumsum(self._counts)))
        at = [int(upto[min(b.low, len(self._counts))]) for b in bins]
        ends = [*at[1:], self.rows]
        return [
            msgspec.structs.replace(b, rows=end - start)
            for b, start, end in zip(bins, at, ends, strict=True)
        ]


def round_step(least: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50, ... that is no less."""
    power = 1
    while True:
        for step in STEPS:
            if step * power >= least:
                return step * power
        power *= 10
