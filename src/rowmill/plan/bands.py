"""Rows, longest answers first, cut into bands: one for each of several engines side by side.

Promises: each row is in one band; the bands fall in length, and are expected to take their engines equally long.
Knows nothing of: prompts, engines.
Source: a step costs its engine much the same however few rows are in it (size/work.py), so the engine that has the longest
answers makes as many steps as the longest of them has tokens, and gets fewer rows for it. On one H200 with the 0.5B shape
bands of equal tokens kept the first of five engines busy for 9.5 s and the last for 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rowmill.size.work import STEP_WEIGHT

_HALVINGS = 40


class Bands:
    """See the module."""

    def __init__(
        self,
        lengths: Sequence[int],
        work: Sequence[float],
        number: int,
        *,
        seats: int,
        behind: int = 0,
    ) -> None:
        """Bands of rows with falling `lengths` and so much `work`, in tokens of a prompt.

        Args:
            number: of engines.
            seats: rows that one engine has in a step at most.
            behind: rows that come behind these, and fill the steps that their longest answers make.
        """
        self._lengths = lengths
        self._work = np.concatenate(([0.0], np.cumsum(work, dtype=np.float64)))
        self._tokens = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        self._seats, self._share = max(1, seats), len(lengths) / (len(lengths) + behind)
        stops = self._stops(number)
        self.band_of = np.repeat(np.arange(number), np.diff(stops, prepend=0)).tolist()
        """The band of each row."""
        # What part of its band lies before a row: taken in this order, all bands begin and end together.
        begins = np.array([0, *stops[:-1]])[self.band_of]
        ends = np.array(stops)[self.band_of]
        before = self._work[:-1] - self._work[begins]
        share = before / np.maximum(self._work[ends] - self._work[begins], 1e-9)
        self.order = np.argsort(share, kind="stable").tolist()
        """Rows as they are to be handed over."""

    def _cost(self, begin: int, end: int) -> float:
        """What rows take an engine, in tokens of a prompt."""
        if begin == end:
            return 0.0
        steps = (self._tokens[end] - self._tokens[begin]) / self._seats
        steps = max(steps, self._share * self._lengths[begin])
        return float(STEP_WEIGHT * steps + self._work[end] - self._work[begin])

    def _stops(self, number: int) -> list[int]:
        """Where each band ends, so that the costliest costs as little as can be."""
        rows = len(self._lengths)
        least, most = 0.0, self._cost(0, rows)
        found = self._filled(number, most)
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            stops = self._filled(number, middle)
            if stops[-1] == rows:
                most, found = middle, stops
            else:
                least = middle
        return found

    def _filled(self, number: int, most: float) -> list[int]:
        """Where bands end that cost no more than `most` each; the last may end before the rows do."""
        stops = []
        begin = 0
        for _ in range(number):
            low, high = begin, len(self._lengths)
            while low < high:
                middle = (low + high + 1) // 2
                if self._cost(begin, middle) <= most:
                    low = middle
                else:
                    high = middle - 1
            begin = low
            stops.append(begin)
        return stops
