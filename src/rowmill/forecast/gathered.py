"""Windows of measured rows -> what a forecast needs of them: sums over all, and the first rows as they are.

Promises: memory does not grow with the input beyond the rows kept; rows are kept in the order they are fed.
Knows nothing of: GPUs, models.
Memory: at most `SAMPLE_ROWS` rows and `SAMPLE_BLOCKS` hashes, and the count of distinct ones (forecast/blocks.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rowmill.forecast.answers import Answers, answers_of
from rowmill.forecast.blocks import Beginnings, Counts, Distinct, Hashes, block_hashes
from rowmill.forecast.bounds import Totals
from rowmill.forecast.engine import Fed
from rowmill.forecast.pool import Run
from rowmill.plan import Plan
from rowmill.rows import Prompts

SAMPLE_ROWS, SAMPLE_BLOCKS = 16_384, 1 << 22


class Gathered:
    """What is known of the rows to ask."""

    def __init__(self) -> None:
        self.totals = Totals()
        """With answers as expected."""
        self.low = Totals()
        self.high = Totals()
        self.distinct = Distinct()
        self.first_rows = 0
        """Rows kept."""
        self._keys: list[int] = []
        self._prompts: list[Counts] = []
        self._answers: list[Answers] = []
        self._hashes: list[Hashes] = []
        self._ends: list[Counts] = []
        self._replica_of: list[int] = []
        self._num_hashes = 0
        self._is_full = False
        self._shared: list[list[Run]] | None = None

    @property
    def is_open(self) -> bool:
        """Whether more rows would be kept."""
        return self.first_rows < SAMPLE_ROWS and not self._is_full

    @property
    def is_as_read(self) -> bool:
        """Whether the rows kept are fed in the order of the input, to whichever engine has room."""
        has_bands = bool(self._replica_of) and max(self._replica_of) >= 0
        return not has_bands and all(a < b for a, b in pairwise(self._keys))

    def add_planned(self, planned: Plan) -> None:
        """Take in the rows to ask, in the order they are fed."""
        for batch in planned.batches(len(planned.prompts) or 1):
            self.add(batch)

    def add(self, prompts: Prompts) -> None:
        """Take rows in, in the order they are fed."""
        lengths = prompts.lengths()
        answers = answers_of(prompts)
        for totals, part in (
            (self.totals, answers.expected),
            (self.low, answers.low),
            (self.high, answers.high),
        ):
            totals.add(lengths, part)
        hashes, ends = block_hashes(prompts.ids, np.asarray(prompts.stops, np.int64))
        self.distinct.add(hashes)
        # For good: rows that fit in later would stand behind a gap, and a run waits until no more are kept.
        self._is_full |= (
            bool(self.first_rows) and self._num_hashes + len(hashes) > SAMPLE_BLOCKS
        )
        if not self.is_open:
            return
        self.first_rows += len(prompts)
        self._keys += prompts.keys
        self._prompts.append(lengths)
        self._answers.append(answers)
        self._hashes.append(hashes)
        self._ends.append(ends + self._num_hashes)
        self._replica_of += prompts.replica_of or [-1] * len(prompts)
        self._num_hashes += len(hashes)

    def totals_of(self, which: str) -> Totals:
        """Sums with answers that are `low`, `expected` or `high`."""
        return {"low": self.low, "expected": self.totals, "high": self.high}[which]

    def fed(self, number: int, *, which: str = "expected", as_read: bool = False) -> list[Fed]:
        """The rows kept, for so many engines side by side.

        Args:
            which: how long answers are: `low`, `expected`, `high`.
            as_read: in the order of the input, and not as planned.
        """
        prompts = np.concatenate(self._prompts).tolist()
        answers = np.concatenate([getattr(one, which) for one in self._answers]).tolist()
        runs = self._runs()
        order = list(range(len(prompts)))
        if as_read:
            order.sort(key=self._keys.__getitem__)
        engines = self._engines(order, number, is_planned=not as_read)
        return [
            Fed(
                [prompts[i] for i in rows],
                [max(1, answers[i]) for i in rows],
                [runs[i] for i in rows],
            )
            for rows in engines
        ]

    def _runs(self) -> list[list[Run]]:
        if self._shared is None:
            hashes, ends = np.concatenate(self._hashes), np.concatenate(self._ends)
            self._shared = Beginnings(hashes, ends).runs
        return self._shared

    def _engines(
        self, order: Sequence[int], number: int, *, is_planned: bool
    ) -> list[list[int]]:
        """Rows of each engine: as planned, else neighbours together, in pieces as they are handed over."""
        if is_planned and self._replica_of and max(self._replica_of) >= 0:
            parts: list[list[int]] = [[] for _ in range(number)]
            for i in order:
                parts[min(max(self._replica_of[i], 0), number - 1)].append(i)
            return parts
        piece = max(1, min(64, len(order) // (4 * number)))
        parts = [[] for _ in range(number)]
        for at in range(0, len(order), piece):
            parts[at // piece % number] += order[at : at + piece]
        return parts
