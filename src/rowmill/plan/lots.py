"""Texts of the whole input -> lots: rows that begin alike are in one lot, or in neighbours, wherever they stand in the input.

A lot is a range of the order of all texts. Where the ranges end is read off a sample of the rows, so nothing but the
sample is ever sorted as a whole; a lot is arranged as one window when its turn comes.

Promises: each row is in one lot; a row's lot depends on its text and its key alone; the same rows, read in the same
order, give the same lots.
Knows nothing of: files, whether it pays.
Memory: the sample, `MOST_SAMPLED` texts of at most `SORTED_CHARS`.
Source: sample sort (Frazer and McKellar 1970): splitters from a sample cut the order into ranges of about equal size.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.plan.arrange import prompt_text, shared_chars
from rowmill.rows import Request

MOST_SAMPLED = 1 << 16
SORTED_CHARS = 2048
"""Of each text, behind what the first rows all begin with: rows that differ later only stand in input order."""
_MIX = np.uint64(0x9E3779B97F4A7C15)

Numbers = npt.NDArray[np.uint64]
Mark = tuple[str, int]
"""Where a row stands in the order: the characters it is sorted by, and its key."""


class Lots(msgspec.Struct, frozen=True):
    """How rows are parted: `plan/lots.json`."""

    root: str
    """What the first rows all begin with; it is not looked at."""
    edges: list[Mark]
    """Of each lot but the first, the place in the order where it begins."""
    rows: list[int] = []
    """Rows of each lot, once they are parted."""

    @property
    def number(self) -> int:
        """How many lots there are."""
        return len(self.edges) + 1

    def lot_of(self, mark: Mark) -> int:
        """The lot of a row."""
        return bisect.bisect_right(self.edges, mark)

    def marks(self, requests: Sequence[Request]) -> list[Mark]:
        """Where rows stand."""
        return marks_of(self.root, requests)


def marks_of(root: str, requests: Sequence[Request]) -> list[Mark]:
    """Where rows stand in the order of all texts."""
    skip, stop = len(root), len(root) + SORTED_CHARS
    texts = map(prompt_text, requests)
    return [
        (t[skip:stop] if t.startswith(root) else t[:SORTED_CHARS], r.key)
        for t, r in zip(texts, requests, strict=True)
    ]


class Sample:
    """Rows drawn evenly from the input as it is read."""

    def __init__(self, most: int = MOST_SAMPLED) -> None:
        self._most, self._seen = most, 0
        self._bits = 0
        """A row is kept where so many bits of its number's mix are 0."""
        self._kept: list[tuple[int, Mark, int]] = []
        """The mix of each row's number, its mark, the characters of its text."""
        self._root: str | None = None

    def add(self, requests: Sequence[Request]) -> None:
        """Rows of a window, in input order."""
        if not requests:
            return
        if self._root is None:
            self._root = root_of(requests)
        numbers = np.arange(self._seen, self._seen + len(requests), dtype=np.uint64)
        mixed = _mixed(numbers)
        self._seen += len(requests)
        mask = np.uint64((1 << self._bits) - 1)
        chosen = np.flatnonzero((mixed & mask) == 0).tolist()
        rows = [requests[i] for i in chosen]
        marks, lengths = marks_of(self._root, rows), [len(prompt_text(row)) for row in rows]
        self._kept += zip(mixed[chosen].tolist(), marks, lengths, strict=True)
        while len(self._kept) > self._most:
            self._bits += 1
            rest = (1 << self._bits) - 1
            self._kept = [one for one in self._kept if not one[0] & rest]

    def lots(self, number: int) -> Lots:
        """Lots of which none has more than about twice the mean of rows, nor of characters."""
        kept = sorted((mark, length) for _, mark, length in self._kept)
        marks = [mark for mark, _ in kept]
        lengths = np.array([length for _, length in kept], np.float64)
        weights = np.cumsum(1 + lengths / max(float(lengths.mean()), 1.0)) if kept else lengths
        wanted = np.arange(1, number) * (float(weights[-1]) / number if kept else 0.0)
        at = np.searchsorted(weights, wanted).tolist()
        edges = [_shortest(marks[i - 1], marks[i]) if i else ("", 0) for i in at]
        return Lots(self._root or "", edges)


def _shortest(before: Mark, mark: Mark) -> Mark:
    """The first place in the order, of few characters, that parts two rows."""
    shared = shared_chars(before[0], mark[0])
    if shared == len(mark[0]) or before[0] == mark[0]:
        return mark
    return mark[0][: shared + 1], 0


def _mixed(numbers: Numbers) -> Numbers:
    mixed = (numbers + np.uint64(1)) * _MIX
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX
    return mixed ^ (mixed >> np.uint64(29))


class Stretch:
    """Rows of one stretch of the order of all texts, as a lot has them: so many of them as are worth a look."""

    def __init__(self, rows: int, most: int) -> None:
        """A stretch with about `most` of `rows` rows."""
        self._rows, self._most = rows, most
        self._root = ""
        self._low: Mark = ("", -1)
        self._high: Mark | None = None
        self._is_chosen = False
        self.requests: list[Request] = []

    def add(self, requests: Sequence[Request]) -> None:
        """Rows of a window, in input order; the first ones say where the stretch begins and ends."""
        if not requests:
            return
        if not self._is_chosen:
            self._choose(requests)
        for request, mark in zip(requests, marks_of(self._root, requests), strict=True):
            is_in = mark >= self._low and (self._high is None or mark < self._high)
            if is_in and len(self.requests) < 2 * self._most:
                self.requests.append(request)

    def _choose(self, requests: Sequence[Request]) -> None:
        self._is_chosen = True
        self._root = root_of(requests)
        marks = sorted(marks_of(self._root, requests))
        wanted = -(-len(marks) * self._most // max(self._rows, 1))
        if wanted >= len(marks):
            return
        at = (len(marks) - wanted) // 2
        self._low, self._high = marks[at], marks[at + wanted]


def root_of(requests: Sequence[Request]) -> str:
    """What all texts begin with; nothing where they are all one."""
    texts = [prompt_text(request) for request in requests]
    first, last = min(texts), max(texts)
    return first[: shared_chars(first, last)] if first != last else ""
