"""Records -> good, bad and blank ones: found in the text as a whole, without taking each record apart.

Promises: every record is exactly one of the three, whatever its neighbours are.
Knows nothing of: Arrow, files.
Memory: the text's marks: 8 bytes a delimiter and a few tens a record.
"""

from __future__ import annotations

import numpy as np

from rowmill.read.csv_cut import CR, LF, Offsets, Truths, delimiters, record_ends
from rowmill.read.csv_fields import fields_of, too_long, why_bad
from rowmill.rows import CsvLayout


class Sorting:
    """The records of a text, sorted."""

    def __init__(
        self, text: bytes, layout: CsvLayout, *, is_open: bool, max_record_bytes: int
    ) -> None:
        self._text, self._layout, self._is_open = text, layout, is_open
        self._max_bytes = max_record_bytes
        self._stops = record_ends(text, layout)
        self._starts = np.concatenate((np.zeros(1, np.int64), self._stops))[:-1]
        self._ends = self._without_line_ends()
        self.is_blank: Truths = self._ends == self._starts
        self.is_good: Truths = ~(self.is_blank | self._is_bad())

    def whole(self, at: int) -> bytes:
        """Record `at` with its line end."""
        return self._text[self._starts[at] : self._stops[at]]

    def fields(self, at: int) -> list[bytes]:
        """Fields of record `at`; none of one that is too long."""
        if self._num_bytes(at) > self._max_bytes:
            return []
        return fields_of(self._record(at), self._layout)

    def why_bad(self, at: int, num_fields: int) -> str:
        """Why record `at`, which has so many fields, is no row; empty where it is one."""
        if self._num_bytes(at) > self._max_bytes:
            return too_long(self._num_bytes(at), self._max_bytes)
        is_open = self._is_open and at == len(self._stops) - 1
        num_columns = len(self._layout.columns)
        return why_bad(self._record(at), num_fields, num_columns, is_open=is_open)

    def _record(self, at: int) -> bytes:
        return self._text[self._starts[at] : self._ends[at]]

    def _num_bytes(self, at: int) -> int:
        return int(self._stops[at] - self._starts[at])

    def _without_line_ends(self) -> Offsets:
        """Ends of the records' last fields."""
        text = np.frombuffer(self._text, np.uint8)
        ends = self._stops.copy()
        last = text[ends - 1]
        # Another end than a line's is the end of the text.
        ends -= (last == LF) | (last == CR)
        ends -= (last == LF) & (ends > self._starts) & (text[ends - 1] == CR)
        if self._is_open:
            ends[-1] = self._stops[-1]
        return ends

    def _is_bad(self) -> Truths:
        marks = np.searchsorted(delimiters(self._text, self._layout), self._stops)
        num_fields = np.diff(marks, prepend=0) + 1
        is_bad: Truths = num_fields != len(self._layout.columns)
        is_bad |= self._stops - self._starts > self._max_bytes
        nuls = np.flatnonzero(np.frombuffer(self._text, np.uint8) == 0)
        is_bad[np.searchsorted(self._stops, nuls, "right")] = True
        if not is_utf8(self._text):
            is_bad |= ~np.fromiter(
                (is_utf8(self.whole(at)) for at in range(len(is_bad))), np.bool_, len(is_bad)
            )
        is_bad[-1] |= self._is_open
        return is_bad


def is_utf8(text: bytes) -> bool:
    """Whether the text is UTF-8."""
    try:
        text.isascii() or text.decode()
    except UnicodeDecodeError:
        return False
    return True
