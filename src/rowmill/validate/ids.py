"""The user's own id of a row, in one spelling.

Promises: 1 and "1" differ; composed and decomposed letters differ; a letter and its escape are the same;
numbers keep their digits.
Knows nothing of: whether ids repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from rowmill.errors import InvalidRow, RowError
from rowmill.rows import AnyRow
from rowmill.validate.lines import split_columns, value_of
from rowmill.validate.once import repeated_columns

NO_ID = (b"", b"null", b'""')
"""JSON texts that say that a row has none."""
_QUOTE, _LIST, _OBJECT = b'"[{'


def canonical_id(raw: bytes, field: str) -> bytes:
    """JSON text of an id; empty where it is null, an empty string or absent.

    Raises:
        InvalidRow: a list or an object.
    """
    if raw in NO_ID:
        return b""
    if raw[0] == _QUOTE:  # a string; without a backslash JSON has one spelling for it
        return raw if b"\\" not in raw else msgspec.json.encode(value_of(raw, field))
    if raw[0] in (_LIST, _OBJECT):
        found = "a list" if raw[0] == _LIST else "an object"
        reason = f"`{field}` is {found}, expected a string or a number as id"
        raise InvalidRow(reason=reason)
    return raw


def id_names(id_column: str) -> tuple[str, ...]:
    """The columns that may hold the id in a job with this `validate.id_column`."""
    return (id_column,) if id_column else ("custom_id", "id")


def is_sound(raw: bytes) -> bool:
    """Whether the JSON text of an id can be read: it is UTF-8, its characters are whole, a float holds its numbers."""
    if raw.startswith(b'"') and raw.isascii() and b"\\" not in raw:
        return True
    try:
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


class IdColumns:
    """The columns that may hold the id; the first that does, counts."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        fields = [(f"found{i}", Raw, Raw()) for i in range(len(names))]
        renamed = {f"found{i}": name for i, name in enumerate(names)}
        struct = msgspec.defstruct("Ids", fields, rename=renamed, gc=False)
        self._decode = msgspec.json.Decoder(struct).decode

    def found(self, columns: Mapping[str, bytes]) -> tuple[str, bytes]:
        """The column that holds a row's id, and the id in its canonical spelling; both empty for none.

        Raises:
            InvalidRow: a list or an object.
        """
        for name in self.names:
            found = canonical_id(columns.get(name, b""), name)
            if found:
                return name, found
        return "", b""

    def among(self, columns: Mapping[str, bytes]) -> bytes:
        """Canonical id of a row; empty for none. Raises InvalidRow for a list or an object."""
        return self.found(columns)[1]

    def of(self, row: AnyRow) -> bytes:
        """As `among`, from the line; empty where it cannot be read."""
        try:
            return self.among(self.columns(row.line))
        except RowError:
            return b""

    def columns(self, line: bytes) -> Mapping[str, bytes]:
        """JSON text of each of the columns; empty where the line has none of its name. Raises Unreadable."""
        try:
            found = msgspec.structs.astuple(self._decode(line))
        except (msgspec.MsgspecError, RecursionError):
            return split_columns(line)
        return {name: bytes(raw) for name, raw in zip(self.names, found, strict=True)}

    def columns_once(self, line: bytes) -> Mapping[str, bytes]:
        """As `columns`, without those that stand in the line twice: nobody can say which is meant. Raises Unreadable."""
        columns = self.columns(line)
        if all(line.count(b'"%b"' % name.encode()) <= 1 for name in self.names):
            return columns
        twice = repeated_columns(line)
        return {name: raw for name, raw in columns.items() if name not in twice}
