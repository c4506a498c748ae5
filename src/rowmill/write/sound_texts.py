"""Batches with texts that are no UTF-8 -> the same without them: no reader opens a file that holds one.

Promises: a value that holds such a text is null, an empty text where its column knows no null; no other
value and no type changes.
Knows nothing of: files, rows.
Memory: one batch, and the values of its unsound columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowmill.shown.values import apart

if TYPE_CHECKING:
    import pyarrow as pa


def with_sound_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, unsound texts taken out."""
    import pyarrow as pa

    arrays = [
        _sound(column, field) for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def with_sound_entries(array: pa.Array) -> pa.Array:
    """A dictionary without null among its entries, which Parquet cannot write: its rows are null instead."""
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type) or not array.dictionary.null_count:
        return array
    return _encoded(array.dictionary_decode(), array.type)


def _sound(column: pa.Array, field: pa.Field) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    bad = set(apart(column)[1])
    if not bad:
        return column
    # A dictionary is written whole, so what no row names would still be in it.
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    places = [None if at in bad else at for at in range(len(plain))]
    # Unlike a mask, this leaves no byte of it behind.
    mended = plain.take(pa.array(places, pa.int64()))
    if not (field.nullable or pa.types.is_nested(plain.type)):
        mended = pc.fill_null(mended, "")
    return mended if plain is column else _encoded(mended, column.type)


def _encoded(plain: pa.Array, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    found = plain.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        found.indices.cast(type_.index_type), found.dictionary, ordered=type_.ordered
    )
