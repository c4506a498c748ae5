"""Lines of JSON -> columns of JSON texts -> an Arrow batch.

Promises: a column that is marked holds the text of each value byte for byte; null and absent are null;
the last of equal keys counts.
Knows nothing of: files, why a line is bad.
Memory: one window. Time: about 3 us a row of six columns.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from rowmill.write.kinds import LARGEST_EXACT, NULL_TEXT, arrow_type, is_marked, see

if TYPE_CHECKING:
    import pyarrow as pa

MOST_COLUMNS = 4000
MORE_FRAMES = 500
JsonText = bytes | msgspec.Raw
Split = Callable[[bytes], Mapping[str, bytes]]
"""The columns of a line, the slow and sure way."""

_decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TooManyColumns(Exception):
    """More distinct keys than a table can have columns."""


def split_lines(
    lines: Sequence[bytes], split: Split
) -> list[Mapping[str, bytes] | Mapping[str, msgspec.Raw]]:
    """The columns of each line."""
    rows: list[Mapping[str, bytes] | Mapping[str, msgspec.Raw]] = []
    for line in lines:
        try:
            rows.append(_decode_row(line))
        except (msgspec.MsgspecError, RecursionError):
            with _deeper():
                rows.append({column_name(key): raw for key, raw in split(line).items()})
    return rows


@contextlib.contextmanager
def _deeper() -> Iterator[None]:
    """What was read where a row was judged is read here, too: how deep a line may be nested depends on who asks."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + MORE_FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def columns_of(
    rows: Sequence[Mapping[str, bytes] | Mapping[str, msgspec.Raw]],
) -> dict[str, list[JsonText]]:
    """Rows turned into columns, in the order in which columns come; what is absent is null.

    Raises: TooManyColumns.
    """
    if not rows:
        return {}
    if len(rows[0]) <= MOST_COLUMNS and all(row.keys() == rows[0].keys() for row in rows):
        return {name: [row[name] for row in rows] for name in rows[0]}
    found = dict.fromkeys(name for row in rows for name in row)
    if len(found) > MOST_COLUMNS:
        raise TooManyColumns
    columns: dict[str, list[JsonText]] = {name: [NULL_TEXT] * len(rows) for name in found}
    for at, row in enumerate(rows):
        for name, raw in row.items():
            columns[name][at] = raw
    return columns


def to_batch(
    columns: dict[str, list[JsonText]], rows: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Columns as a batch of the schema; columns that it does not know are left out."""
    import pyarrow as pa

    arrays = []
    for field in schema:
        raws = columns.get(field.name)
        arrays.append(pa.nulls(rows, field.type) if raws is None else _array(raws, field))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column_name(key: str) -> str:
    """The column's name for a key: half a surrogate pair, which no name can hold, as its escape."""
    return key.encode("utf-8", "backslashreplace").decode()


def fits(raw: bytes, field: pa.Field) -> bool:
    """Whether a scalar that was salvaged from a bad line fits a column, which was typed without it."""
    import pyarrow as pa

    if is_marked(field):
        return True
    seen = see([raw], 0)
    if seen.is_text:
        return False
    if pa.types.is_int64(found := arrow_type(seen)):
        if pa.types.is_float64(field.type):
            return max(-seen.low, seen.high) <= LARGEST_EXACT
        if pa.types.is_uint64(field.type):
            return seen.low >= 0
    return bool(found == field.type)


def _array(raws: list[JsonText], field: pa.Field) -> pa.Array:
    import pyarrow as pa

    if is_marked(field):
        texts = [bytes(raw) for raw in raws]
        array = pa.array([None if text == NULL_TEXT else text for text in texts], pa.binary())
        return array.cast(pa.string())
    return pa.array(msgspec.json.decode(b"[%b]" % b",".join(raws)), field.type)
