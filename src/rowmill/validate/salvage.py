"""Line that is no row -> the columns of it that results carry all the same.

Promises: of a line that is one JSON object, all columns but those that stand in it twice and those that are named
as result columns are; of any other line the columns of its folders, and the id where a lenient reader finds one; ids
by the rule of ids.py.
Knows nothing of: formats of results.
Memory: one line.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from rowmill.errors import RowError
from rowmill.rows import Partitions
from rowmill.validate.ids import IdColumns, is_sound
from rowmill.validate.lines import Columns, split_columns
from rowmill.validate.once import repeated_columns

_BOM = b"\xef\xbb\xbf"


class Salvage:
    """What can be read of the bad lines of one job."""

    def __init__(self, prefix: str, ids: IdColumns) -> None:
        """Columns whose names begin with `prefix` are never carried; `ids` are those that may hold the id."""
        self._prefix, self._ids = prefix, ids

    def whole(self, line: bytes) -> Columns | None:
        """All columns that can be carried; None where the line is no JSON object."""
        try:
            line.decode()
            columns = split_columns(line)
            twice = repeated_columns(line)
        except (RowError, ValueError):
            return None
        return {
            name: raw
            for name, raw in columns.items()
            if name not in twice and not name.startswith(self._prefix)
        }

    def id_alone(self, line: bytes, folders: Partitions = ()) -> Columns:
        """Of a line that is no object: the column with the id, found by a reader that takes more for JSON than it is,
        and those of its folders, unless the line has them otherwise."""
        row = _read(line)
        added = {name: value for name, value in folders if row.get(name, value) == value}
        columns = {
            name: _json_of(value)
            for name, value in (added | row).items()
            if name in (*added, *self._ids.names) and not name.startswith(self._prefix)
        }
        try:
            found, _ = self._ids.found(columns)
        except RowError:
            found = ""
        return {name: raw for name, raw in columns.items() if name in (*added, found)}

    def members(self, line: bytes, folders: Partitions = ()) -> bytes:
        """What can be carried, as it stands inside an object: a comma behind each."""
        columns = self.whole(line)
        return members_of(self.id_alone(line, folders) if columns is None else columns)

    def id(self, line: bytes) -> bytes:
        """JSON text of the id of any line, good or bad; empty where there is none that can be read."""
        try:
            columns = self._ids.columns_once(line)
        except RowError:
            columns = self.id_alone(line)
        try:
            id = self._ids.among(columns)
        except RowError:
            return b""
        return id if is_sound(id) else b""


def members_of(columns: Columns) -> bytes:
    """Columns as they stand inside an object: a comma behind each."""
    return b"".join([b"%b:%b," % (_key(name), raw) for name, raw in columns.items()])


def _key(name: str) -> bytes:
    try:
        return msgspec.json.encode(name)
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(name).encode()


def _read(line: bytes) -> dict[str, Any]:
    """The columns that the lenient reader finds, but those given twice."""
    try:
        row = _lenient.decode(line.removeprefix(_BOM).decode(errors="surrogateescape"))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _json_of(value: Any) -> bytes:
    """JSON text of what the lenient reader found; null where it has none."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return b"null"


def _number(digits: str) -> msgspec.Raw:
    return msgspec.Raw(digits.encode())


def _given_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without the names that it has twice."""
    counts = Counter(name for name, _ in pairs)
    return {name: value for name, value in pairs if counts[name] == 1}


_lenient = json.JSONDecoder(
    object_pairs_hook=_given_once, parse_int=_number, parse_float=_number, strict=False
)
