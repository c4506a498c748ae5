"""Folders named `column=value` -> columns of the files in them.

Promises: values are text as the folder has it, `007` and `1e3` alike; a column that the row has itself wins.
Knows nothing of: what the columns are for.
Source: Hive's layout: names and values percent-escaped, `__HIVE_DEFAULT_PARTITION__` for null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from rowmill.rows import Partitions

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"

_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def partitions_of(path: str) -> Partitions:
    """(column, value) of each folder on the way to a file; of equal names the innermost counts."""
    found: dict[str, str | None] = {}
    for part in PurePosixPath(path).parent.parts:
        name, mark, value = part.partition("=")
        if mark and name:
            found[unquote(name)] = None if value == NULL else unquote(value)
    return tuple(found.items())


def line_adder(partitions: Partitions) -> Callable[[bytes], bytes]:
    """A function that puts the columns behind those of a JSON line; lines that are no objects stay as they are."""
    texts = {
        name: msgspec.json.encode(name) + b":" + msgspec.json.encode(value)
        for name, value in partitions
    }
    marks = {name: text[: text.index(b":")] for name, text in texts.items()}
    whole = b",".join(texts.values())

    def add(line: bytes) -> bytes:
        if not (whole and line.startswith(b"{") and line.endswith(b"}")):
            return line
        # A backslash may spell a name in another way.
        if b"\\" in line or any(mark in line for mark in marks.values()):
            missing = _missing(line, texts)
            return _joined(line, b",".join(missing)) if missing else line
        return _joined(line, whole)

    return add


def own_names(line: bytes) -> Collection[str]:
    """Columns of a JSON line; none where it is no object."""
    try:
        return _names(line).keys()
    except (msgspec.MsgspecError, RecursionError):
        return ()


def _missing(line: bytes, texts: dict[str, bytes]) -> list[bytes]:
    try:
        own = _names(line)
    except (msgspec.MsgspecError, RecursionError):
        return []
    return [text for name, text in texts.items() if name not in own]


def _joined(line: bytes, columns: bytes) -> bytes:
    head = line[:-1].rstrip()
    return b"{" + columns + b"}" if head == b"{" else b"%b,%b}" % (head, columns)


def with_columns(
    batch: pa.RecordBatch, partitions: Partitions, wants: Callable[[str], bool] | None
) -> pa.RecordBatch:
    """The same rows with the folders' columns behind their own, as strings."""
    import pyarrow as pa

    own = set(batch.schema.names)
    for name, value in partitions:
        if name not in own and (wants is None or wants(name)):
            values = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
            batch = batch.append_column(pa.field(name, pa.string()), values)
    return batch
