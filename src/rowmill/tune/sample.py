"""Planned windows -> rows in an order of which every stretch is like the whole job.

Promises: rows that begin alike, or that the plan has put longest first, stay together as they lie, in pieces of at most
`MOST_ROWS` or `LIKE_ROWS`; pieces are stratified by how many rows they have, by how long answers may get and by the
lengths of prompts; every row comes once.
Knows nothing of: engines, time.
Memory: the prompts given.
Source: systematic sampling over strata; the golden ratio spreads any stretch of its multiples evenly (Weyl, 1916).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from rowmill.forecast.blocks import BLOCK, Counts
from rowmill.forecast.learned import Asked, Learned, asked_of
from rowmill.plan import Plan
from rowmill.rows import Prompts

MOST_ROWS = 64
LEAST_SHARED = 4 * BLOCK
"""Tokens beyond what all rows begin with, from which on neighbours are of one piece."""
LIKE_ROWS = 16
"""Of rows that the plan has put longest first: such rows end together, and then new prompts come together as well. One by
one among others each brings its prompt into a step of its own, which took vLLM on a CPU 1.24 times as long."""
LEAST_PIECES = 64
GOLDEN = 0.6180339887498949


class Piece(msgspec.Struct, frozen=True):
    """Rows that go to the engine one behind the other."""

    window: int
    start: int
    stop: int


class Sample:
    """Rows of a job, some or all."""

    def __init__(self) -> None:
        self._windows: list[Prompts] = []
        self._asked: list[Asked] = []
        self._shared: list[Counts] = []
        self.rows = self.tokens = 0

    def add(self, plan: Plan) -> None:
        """Take in the rows of a window that are to be asked, in their order."""
        for prompts in plan.batches(len(plan.prompts) or 1):
            self._windows.append(prompts)
            self._asked.append(asked_of(prompts))
            self._shared.append(shared_tokens(prompts))
            self.rows += len(prompts)
            self.tokens += len(prompts.ids)

    def stream(self) -> Iterator[Prompts]:
        """All rows once, piece by piece."""
        pieces = self._pieces()
        keys = [self._key(piece) for piece in pieces]
        by_key = sorted(range(len(pieces)), key=keys.__getitem__)
        rank = np.argsort((np.arange(len(pieces)) + 0.5) * GOLDEN % 1.0, kind="stable")
        for i in rank.tolist():
            piece = pieces[by_key[i]]
            yield self._windows[piece.window].slice(piece.start, piece.stop)

    def asked_by_key(self) -> dict[int, tuple[int, int, bool]]:
        """(tokens of the prompt, most of the answer, whether the answer is as long in any case) of each row."""
        found: dict[int, tuple[int, int, bool]] = {}
        for prompts, asked in zip(self._windows, self._asked, strict=True):
            columns = (asked.lengths.tolist(), asked.most.tolist(), asked.is_exact.tolist())
            found.update(zip(prompts.keys, zip(*columns, strict=True), strict=True))
        return found

    def answers(self, learned: Learned) -> float:
        """Tokens that all its rows will answer, about."""
        return float(sum(asked.expected(learned).sum() for asked in self._asked))

    def answers_error(self, learned: Learned) -> float:
        """Standard error of that: what is exact has none."""
        squares = 0.0
        for asked in self._asked:
            squares += learned.error(asked.classes()[~asked.is_exact]) ** 2
        return float(squares**0.5)

    @property
    def prompt_tokens(self) -> int:
        """Of all its rows; where an endpoint tokenises, about."""
        return int(sum(asked.lengths.sum() for asked in self._asked))

    def _pieces(self) -> list[Piece]:
        most = max(1, min(MOST_ROWS, self.rows // LEAST_PIECES))
        pieces = []
        for number, (prompts, shared) in enumerate(
            zip(self._windows, self._shared, strict=True)
        ):
            if not len(prompts):
                continue
            like = LIKE_ROWS if self._falls(number) else 1
            # What every row begins with is in the cache in any order: no reason to keep rows together.
            root = int(shared[1:].min()) if len(prompts) > 2 else 0
            start = 0
            for i in range(1, len(prompts) + 1):
                has_room = i < len(prompts) and i - start < most
                if not (has_room and (i - start < like or shared[i] - root >= LEAST_SHARED)):
                    pieces.append(Piece(number, start, i))
                    start = i
        return pieces

    def _falls(self, window: int) -> bool:
        """Whether the plan has put the longest answers of a window first."""
        most = self._asked[window].most
        return bool(most[0] > most[-1] and (np.diff(most) <= 0).all())

    def _key(self, piece: Piece) -> tuple[int, int, float]:
        asked, rows = self._asked[piece.window], slice(piece.start, piece.stop)
        most = int(np.log2(float(asked.most[rows].mean()) + 1))
        return (piece.stop - piece.start).bit_length(), most, float(asked.lengths[rows].mean())


def shared_tokens(prompts: Prompts) -> Counts:
    """Tokens that each row begins with like the one before it; bodies are not looked into. Shapes: R."""
    found = np.zeros(len(prompts), np.int64)
    if prompts.wires:
        return found
    before = None
    for i, ids in enumerate(prompts.row_ids()):
        if before is not None:
            size = min(len(before), len(ids))
            differs = np.flatnonzero(before[:size] != ids[:size])
            found[i] = differs[0] if len(differs) else size
        before = ids
    return found
