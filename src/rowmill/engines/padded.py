"""Rows -> texts -> steps of texts of like length: for engines that fill a step up to its longest text.

Promises: every text is in one step; the text that waits longest is in the next; a step has no more than so many
tokens, filling counted in, but where one text alone has more.
Knows nothing of: models.
Memory: the rows that wait. Time: O(rows that wait) a step, for the sort that is nearly done already.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from operator import attrgetter

import msgspec

from rowmill.engines.vectors import answered_with, parts_of
from rowmill.rows import Ids, Outcome, Pair, Piece, Prompts

MOST_FILLING = 0.1
"""Share of a step: what is computed in vain costs as much as the rest, a further step next to nothing."""
_length = attrgetter("length")


class TextRow(msgspec.Struct):
    """A row whose texts are being embedded."""

    key: int
    pieces: list[Piece]
    """Of a text that is too long, where its chunks lie in it; else empty."""
    pairs: list[Pair]
    """Of a row that is scored, each query with a document."""
    vectors: list[bytes]
    """One for each text of it, empty while it is missing."""
    prompt_tokens: int
    began: float
    missing: int


class Text(msgspec.Struct):
    """What becomes one vector."""

    row: TextRow
    at: int
    """Which of the row's it is."""
    ids: Ids
    length: int
    number: int
    """In order of arrival."""
    second: int
    """Its first token that is of another kind, in a pair; else its length."""


class Waiting:
    """Texts that wait, by length."""

    def __init__(self, step_tokens: int) -> None:
        self._step_tokens = step_tokens
        self._texts: list[Text] = []
        self._is_sorted = True
        self._count = 0
        self.rows = 0
        """Rows taken and not answered."""

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, prompts: Prompts) -> None:
        """More rows."""
        now = time.monotonic()
        for key, ids in zip(prompts.keys, prompts.row_ids(), strict=True):
            pieces, pairs = prompts.pieces.get(key, []), prompts.pairs.get(key, [])
            row = TextRow(key, pieces, pairs, [], len(ids), now, 0)
            for at, part in enumerate(parts_of(ids, pieces, pairs)):
                second = pairs[at].second if pairs else len(part)
                self._texts.append(Text(row, at, part, len(part), self._count, second))
                self._count += 1
                row.vectors.append(b"")
                row.missing += 1
        self.rows += len(prompts)
        self._is_sorted = False

    def step(self) -> list[Text]:
        """The texts of the next step: the one that waits longest, and its neighbours in length."""
        if not self._is_sorted:
            self._texts.sort(key=_length)
            self._is_sorted = True
        texts = self._texts
        oldest = min(range(len(texts)), key=lambda i: texts[i].number)
        start, stop = oldest, oldest + 1
        needed = texts[oldest].length
        # The nearer in length of the two neighbours joins, while the step has room and is not filled up too much.
        while (at := _nearer(texts, start, stop)) >= 0:
            needed += texts[at].length
            longest = max(texts[at].length, texts[stop - 1].length)
            computed = (stop - start + 1) * longest
            if computed > self._step_tokens or needed < (1 - MOST_FILLING) * computed:
                break
            start, stop = min(start, at), max(stop, at + 1)
        taken = texts[start:stop]
        del texts[start:stop]
        return taken

    def finished(self, texts: list[Text], vectors: list[bytes]) -> Iterator[Outcome]:
        """Outcomes of rows whose last vector is among these."""
        now = time.monotonic()
        for text, vector in zip(texts, vectors, strict=True):
            row = text.row
            row.vectors[text.at] = vector
            row.missing -= 1
            if not row.missing:
                self.rows -= 1
                yield _answered(row, now)

    def failed(self, text: Text, kind: str, reason: str) -> Iterator[Outcome]:
        """The outcome of the row of a text that has no vector; the row's other texts go with it."""
        row = text.row
        if row.missing < 0:
            return
        row.missing = -1
        self._texts = [other for other in self._texts if other.row is not row]
        self.rows -= 1
        yield Outcome(
            key=row.key,
            status="error",
            prompt_tokens=row.prompt_tokens,
            attempts=1,
            seconds=round(time.monotonic() - row.began, 6),
            error_kind=kind,
            error=reason,
        )


def _nearer(texts: list[Text], start: int, stop: int) -> int:
    """Which of the two neighbours of a stretch of sorted texts is nearer to it in length; -1: there is none."""
    if stop == len(texts):
        return start - 1
    above = texts[stop].length - texts[stop - 1].length
    below = texts[start].length - texts[start - 1].length if start else above
    return stop if above <= below else start - 1


def _answered(row: TextRow, now: float) -> Outcome:
    return Outcome(
        key=row.key,
        status="ok",
        prompt_tokens=row.prompt_tokens,
        attempts=1,
        seconds=round(now - row.began, 6),
        **answered_with(row.vectors, row.pieces, row.pairs),
    )
