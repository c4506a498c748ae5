"""A prompt -> the parts of it that may change places.

A part is a line of the prompt with fields and words of its own (`Product: {product}`), or, where fields stand alone
in their lines, a paragraph. Only neighbouring parts change places, so what the prompt says around them stays around them.

Promises: the same parts in another order are parted alike.
Knows nothing of: rows, which order is good.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.errors import ConfigError
from rowmill.validate.columns import compile_columns

SEPARATORS = ("\n", "\n\n")


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


def _longest_run(marks: Sequence[bool]) -> tuple[int, int]:
    """(start, stop) of the most neighbours that are marked."""
    best, start = (0, 0), 0
    for at, mark in enumerate([*marks, False]):
        if not mark:
            best, start = max(best, (start, at), key=lambda run: run[1] - run[0]), at + 1
    return best
