"""A prompt's fields, and texts of some rows -> the order of its parts in which most of the prompts begin alike.

A part is a line of the prompt with fields and words of its own (`Product: {product}`), or, where fields stand alone
in their lines, a paragraph. Only neighbouring parts change places, so what the prompt says around them stays around them.

Promises: the same parts in another order, or nothing; the best order given twice stays as it is.
Knows nothing of: engines, whether it is asked for.
Memory: a number a row and part.
Source: GGR of "Optimizing LLM Queries in Relational Data Analytics" (arXiv 2403.05821), of which this is one order for
all rows: part after part, the one of which most characters are shared by rows that are equal so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.errors import ConfigError
from rowmill.rows import Request
from rowmill.validate.columns import compile_columns

SEPARATORS = ("\n", "\n\n")
Codes = list[int]


class Parts(msgspec.Struct, frozen=True):
    """A prompt, cut where parts may change places."""

    pieces: list[str]
    separator: str
    first: int
    """Of the parts among the pieces."""
    columns: list[tuple[str, ...]]
    """Of each part."""
    words: list[int]
    """Of each part, characters that the prompt says itself."""
    skipped: int
    """Fields before the first part."""

    def in_order(self, order: Sequence[int]) -> str:
        """The prompt with its parts in another order."""
        pieces = list(self.pieces)
        for at, part in enumerate(order):
            pieces[self.first + at] = self.pieces[self.first + part]
        return self.separator.join(pieces)


class FieldOrder(msgspec.Struct, frozen=True):
    """An order of parts, and what it is worth within a window."""

    prompt: str
    columns: list[str]
    share: float
    """Of the prompts' characters, those that a row has in common with an earlier one."""
    share_before: float
    """The same as the prompt stands."""


def parts_of(prompt: str) -> Parts | None:
    """The parts that may change places; None where there are no two neighbours."""
    for separator in SEPARATORS:
        pieces = prompt.split(separator)
        try:
            compiled = list(map(compile_columns, pieces))
        except ConfigError:
            # A column whose name holds a line feed.
            return None
        columns = [template.columns for template in compiled]
        start, stop = _longest_run(list(map(bool, columns)))
        has_words = all(
            any(map(str.isalpha, "".join(t.literals))) for t in compiled[start:stop]
        )
        if stop - start > 1 and has_words:
            words = [len("".join(template.literals)) for template in compiled[start:stop]]
            skipped = sum(map(len, columns[:start]))
            return Parts(pieces, separator, start, columns[start:stop], words, skipped)
    return None


def best_order(prompt: str, requests: Sequence[Request]) -> FieldOrder | None:
    """The order of parts in which rows of one window have most in common; None where nothing can change places.

    Args:
        requests: made of the prompt as it stands.
    """
    parts = parts_of(prompt)
    spans = [request.data_spans for request in requests if request.data_spans]
    if parts is None or len(spans) < 2:
        return None
    codes, lengths = _codes(parts, spans)
    total = sum(len(text) for row in spans for text in row)
    if not total:
        return None
    stands = list(range(len(codes)))
    order = _greedy(codes, lengths)
    share = _shared(order, codes, lengths) / total
    before = _shared(stands, codes, lengths) / total
    if share <= before:
        order, share = stands, before
    names = [name for part in order for name in parts.columns[part]]
    return FieldOrder(parts.in_order(order), names, share, before)


def _longest_run(marks: Sequence[bool]) -> tuple[int, int]:
    """(start, stop) of the most neighbours that are marked."""
    best, start = (0, 0), 0
    for at, mark in enumerate([*marks, False]):
        if not mark:
            best, start = max(best, (start, at), key=lambda run: run[1] - run[0]), at + 1
    return best


def _codes(parts: Parts, spans: Sequence[Sequence[str]]) -> tuple[list[Codes], list[Codes]]:
    """Of each part, a number for each row that is equal where the part's texts are, and the part's characters."""
    codes: list[Codes] = []
    lengths: list[Codes] = []
    at = parts.skipped
    for columns, words in zip(parts.columns, parts.words, strict=True):
        # Data and what the prompt says take turns, data at odd places.
        places = range(2 * at + 1, 2 * (at + len(columns)), 2)
        at += len(columns)
        texts = [tuple(row[i] for i in places) for row in spans]
        known: dict[tuple[str, ...], int] = {}
        codes.append([known.setdefault(text, len(known)) for text in texts])
        lengths.append([words + sum(map(len, text)) for text in texts])
    return codes, lengths


def _greedy(codes: list[Codes], lengths: list[Codes]) -> list[int]:
    """Part after part, the one that shares most with what is chosen before it; of equals the first."""
    chosen: list[int] = []
    so_far: Codes = [0] * len(codes[0])
    left = list(range(len(codes)))
    while left:
        shared = [_kept(so_far, codes[part], lengths[part]) for part in left]
        best = left.pop(shared.index(max(shared)))
        chosen.append(best)
        so_far = _joined(so_far, codes[best])
    return chosen


def _shared(order: Sequence[int], codes: list[Codes], lengths: list[Codes]) -> int:
    so_far: Codes = [0] * len(codes[0])
    shared = 0
    for part in order:
        shared += _kept(so_far, codes[part], lengths[part])
        so_far = _joined(so_far, codes[part])
    return shared


def _kept(so_far: Codes, codes: Codes, lengths: Codes) -> int:
    """Characters of a part that an earlier row has behind the same beginning."""
    first = dict(zip(zip(so_far, codes, strict=True), lengths, strict=True))
    return sum(lengths) - sum(first.values())


def _joined(so_far: Codes, codes: Codes) -> Codes:
    known: dict[tuple[int, int], int] = {}
    return [known.setdefault(pair, len(known)) for pair in zip(so_far, codes, strict=True)]
