"""Columns -> the same with texts that a store can hold, and which rows it cannot.

Promises: limits are counted in bytes of UTF-8; what is cut is cut between characters; JSON texts are never cut.
Knows nothing of: vectors, keys.
Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rowmill.write.keyed.wanted import Holds
from rowmill.write.kinds import is_marked

if TYPE_CHECKING:
    import pyarrow as pa

BadRows = dict[int, str]
"""Row -> why a store does not get it."""


def held_texts(
    columns: pa.RecordBatch, holds: Holds, *, cuts: bool
) -> tuple[pa.RecordBatch, BadRows]:
    """Texts that are too long cut, where `cuts` allows it; else their rows are bad."""
    import pyarrow as pa

    bad: BadRows = {}
    arrays = []
    for field, given in zip(columns.schema, columns.columns, strict=True):
        array = given
        if pa.types.is_string(field.type):
            if cuts and not is_marked(field) and holds.text_bytes is not None:
                array = _cut(array, holds.text_bytes)
            for row, reason in _unheld(array, field, holds):
                bad.setdefault(row, reason)
        arrays.append(array)
    held = pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
    for row, reason in _long_rows(held, holds.row_bytes):
        bad.setdefault(row, reason)
    return held, bad


def _sizes(array: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    found: list[int] = pc.fill_null(pc.binary_length(array), 0).to_pylist()
    return found


def _cut(array: pa.Array, limit: int) -> pa.Array:
    import pyarrow as pa

    long = [row for row, size in enumerate(_sizes(array)) if size > limit]
    if not long:
        return array
    texts = array.to_pylist()
    for row in long:
        texts[row] = texts[row].encode()[:limit].decode(errors="ignore")
    return pa.array(texts, pa.string())


def _unheld(array: pa.Array, field: pa.Field, holds: Holds) -> Iterator[tuple[int, str]]:
    import pyarrow.compute as pc

    if not holds.nul:
        found = pc.fill_null(pc.match_substring(array, "\0"), False)
        for row in np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist():
            yield (
                row,
                f"`{field.name}` holds the character NUL, which the store has no place for",
            )
    limit = holds.text_bytes
    if limit is None:
        return
    way_on = "" if is_marked(field) else '; `sink.long_text = "truncate"` cuts it'
    for row, size in enumerate(_sizes(array)):
        if size > limit:
            yield row, f"`{field.name}` has {size:,} bytes in UTF-8, limit {limit:,}{way_on}"


def _long_rows(columns: pa.RecordBatch, limit: int | None) -> Iterator[tuple[int, str]]:
    if limit is None or columns.get_total_buffer_size() < limit:
        return
    for row, values in enumerate(columns.to_pylist()):
        size = len(msgspec.json.encode(values))
        if size > limit:
            reason = f"its columns have {size:,} bytes, limit {limit:,}; name fewer in `sink.columns`"
            yield row, reason
