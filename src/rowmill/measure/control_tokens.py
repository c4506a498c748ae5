"""Control tokens inside data: find them, and break them with a mark so that they are encoded as text.

Promises: data without control tokens is returned as the very object it was;
the mark is a character that the data does not hold.
Knows nothing of: tokenizers beyond the texts of their control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rowmill.errors import InvalidRow

_MARKS = [
    chr(code) for code in range(0xFDD0, 0xFDF0)
]  # noncharacters: no text for interchange holds them


class ControlTokens:
    """What looks like a control token of one vocabulary."""

    def __init__(self, specials: Sequence[str]) -> None:
        self._specials = tuple(special for special in specials if special)
        longest_first = sorted(self._specials, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._starts = {special[:2] for special in self._specials}

    def may_be_in(self, text: str) -> bool:
        """False only where no control token is in the text: one quick look at how they begin."""
        return any(start in text for start in self._starts)

    def is_in(self, value: Any) -> bool:
        """True where a control token is in a string, or in one anywhere inside a list or an object."""
        if isinstance(value, str):
            return self.may_be_in(value) and self._pattern.search(value) is not None
        if isinstance(value, dict):
            return any(self.is_in(k) or self.is_in(v) for k, v in value.items())
        return isinstance(value, list) and any(map(self.is_in, value))

    def broken(self, value: Any, mark: str) -> Any:
        """The value with `mark` behind the first character of each control token."""
        if isinstance(value, str):
            return self._break(value, mark)
        if isinstance(value, dict):
            return {self.broken(k, mark): self.broken(v, mark) for k, v in value.items()}
        if isinstance(value, list):
            return [self.broken(entry, mark) for entry in value]
        return value

    def broken_parts(self, parts: Sequence[str], mark: str) -> str:
        """Literals and data in turn, joined; tokens that touch data are broken, also where they reach into literals."""
        text = "".join(parts)
        data = _odd_spans(parts)
        out, start = [], 0
        for match in self._pattern.finditer(text):
            if any(match.start() < stop and begin < match.end() for begin, stop in data):
                out.append(text[start : match.start() + 1])
                start = match.start() + 1
        return mark.join([*out, text[start:]])

    def _break(self, text: str, mark: str) -> str:
        return self._pattern.sub(
            lambda found: found.group()[0] + mark + found.group()[1:], text
        )


def _odd_spans(parts: Sequence[str]) -> list[tuple[int, int]]:
    """Where the second, fourth, ... part lies in the joined text."""
    spans, at = [], 0
    for i, part in enumerate(parts):
        if i % 2:
            spans.append((at, at + len(part)))
        at += len(part)
    return spans


def unused_mark(texts: Iterable[str]) -> str:
    """A character that none of the texts holds.

    Raises:
        InvalidRow: there is none; only a hostile row manages that.
    """
    used = set().union(*texts)
    for mark in _MARKS:
        if mark not in used:
            return mark
    reason = "the row holds every noncharacter from U+FDD0 to U+FDEF, expected text"
    raise InvalidRow(reason=reason)


def strings_in(value: Any) -> Iterable[str]:
    """Every string inside a value, names of objects too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield name
            yield from strings_in(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from strings_in(entry)
