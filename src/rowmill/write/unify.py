"""Schemas of many files -> one, and batches of each -> batches of that one.

Promises: the result does not depend on the order of files but for the order of columns; no value changes: a type
is widened only where it holds every value of the narrower one, else the column becomes text.
A schema that all files share stays exactly as it is.
Knows nothing of: files.
Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rowmill.write.kinds import JSON_MARK, is_marked
from rowmill.write.value_text import json_texts, plain_texts
from rowmill.write.widen import storable, widest

if TYPE_CHECKING:
    import pyarrow as pa


def unify(schemas: Sequence[pa.Schema]) -> tuple[pa.Schema, list[str]]:
    """One schema that holds the rows of all.

    Returns: the schema, and a sentence for each column that is not of one type in all of them.
    """
    import pyarrow as pa

    if not schemas:
        return pa.schema([]), []
    first = schemas[0]
    if all(schema.equals(first, check_metadata=True) for schema in schemas):
        return first, []
    notes: list[str] = []
    names = dict.fromkeys(name for schema in schemas for name in schema.names)
    fields = []
    for name in names:
        found = [s.field(name) for s in schemas if name in s.names]
        field = _unified(name, found, is_everywhere=len(found) == len(schemas))
        fields.append(field)
        note = _note(field, found)
        notes += [note] if note else []
    metadata = _shared([schema.metadata for schema in schemas])
    return pa.schema(fields, metadata=metadata), notes


def storable_schema(schema: pa.Schema, format_: str) -> tuple[pa.Schema, list[str]]:
    """The schema as a file of the format keeps it, and a sentence for each column that it holds otherwise."""
    import pyarrow as pa

    fields, notes = [], []
    for field in schema:
        type_ = storable(field.type, format_)
        kept = field if type_ == field.type else field.with_type(type_ or pa.string())
        if type_ is None:
            kept = kept.with_metadata({**(field.metadata or {}), **JSON_MARK})
        if kept is not field:
            what = "JSON text" if type_ is None else f"`{type_}`"
            notes.append(
                f"column `{field.name}` is `{field.type}`; {format_} holds it as {what}"
            )
        fields.append(kept)
    return pa.schema(fields, metadata=schema.metadata), notes


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under the schema: columns by name, types widened, what is absent null.

    Raises: pyarrow.ArrowInvalid for a value that the type does not hold.
    """
    import pyarrow as pa

    if batch.schema.equals(schema, check_metadata=True):
        return batch
    own = batch.schema
    arrays = [
        _fitted(batch.column(field.name), own.field(field.name), field)
        if field.name in own.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The same values under a wider type; structs by the names of their fields."""
    import pyarrow as pa

    if array.type == type_:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(type_):
        return cast(array.dictionary_decode(), type_)
    if pa.types.is_run_end_encoded(array.type):
        return cast(pa.compute.run_end_decode(array), type_)
    ways = {
        pa.lib.Type_STRUCT: _cast_struct,
        pa.lib.Type_LIST: _cast_list,
        pa.lib.Type_LARGE_LIST: _cast_list,
        pa.lib.Type_FIXED_SIZE_LIST: _cast_fixed,
        pa.lib.Type_MAP: _cast_map,
    }
    way = ways.get(type_.id)
    return way(array, type_) if way else array.cast(type_)


def _unified(name: str, fields: list[pa.Field], *, is_everywhere: bool) -> pa.Field:
    import pyarrow as pa

    metadata = _shared([field.metadata for field in fields])
    nullable = not is_everywhere or any(field.nullable for field in fields)
    marks = {is_marked(field) for field in fields if not pa.types.is_null(field.type)}
    type_ = widest([field.type for field in fields])
    if type_ is None or len(marks) > 1:
        nested = len(marks) > 1 or any(pa.types.is_nested(field.type) for field in fields)
        metadata = {**(metadata or {}), **JSON_MARK} if nested else metadata
        type_ = pa.string()
    elif marks == {True}:
        metadata = {**(metadata or {}), **JSON_MARK}
    return pa.field(name, type_, nullable, metadata)


def _note(field: pa.Field, fields: list[pa.Field]) -> str:
    types = list(dict.fromkeys(str(one.type) for one in fields))
    if len(types) < 2 or all(one.type == field.type for one in fields):
        return ""
    kept = "JSON text" if is_marked(field) else f"`{field.type}`"
    each = ", ".join(f"`{one}`" for one in types)
    return f"column `{field.name}` is {each} in different files; results hold it as {kept}"


def _shared(every: Sequence[dict[bytes, bytes] | None]) -> dict[bytes, bytes] | None:
    """Metadata that all agree on."""
    first, *rest = [one or {} for one in every]
    shared = {k: v for k, v in first.items() if all(one.get(k) == v for one in rest)}
    return shared or None


def _fitted(array: pa.Array, own: pa.Field, field: pa.Field) -> pa.Array:
    import pyarrow as pa

    if array.type == field.type and is_marked(own) == is_marked(field):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), field.type)
    if is_marked(field) and not is_marked(own):
        return json_texts(array)
    if pa.types.is_string(field.type) and not _is_text(array.type):
        return plain_texts(array)
    return cast(array, field.type)


def _is_text(type_: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    types = pa.types
    return bool(
        types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    )


def _cast_struct(array: pa.Array, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    own = {field.name: at for at, field in enumerate(array.type)}
    fields = list(type_)
    children = [
        cast(array.field(own[field.name]), field.type)
        if field.name in own
        else pa.nulls(len(array), field.type)
        for field in fields
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _cast_list(array: pa.Array, type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    values = cast(array.flatten(), type_.value_type)
    make = pa.LargeListArray if pa.types.is_large_list(type_) else pa.ListArray
    mask = array.is_null() if array.null_count else None
    return make.from_arrays(_offsets(array, type_), values, type=type_, mask=mask)


def _cast_fixed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A null list has values as others have."""
    import pyarrow as pa

    size = type_.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    mask = array.is_null() if array.null_count else None
    return pa.FixedSizeListArray.from_arrays(
        cast(values, type_.value_type), type=type_, mask=mask
    )


def _cast_map(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """By way of the list of pairs that a map is."""
    import pyarrow as pa

    pair = pa.struct(
        [pa.field("key", array.type.key_type, False), ("value", array.type.item_type)]
    )
    flat = array.cast(pa.list_(pair)).flatten()
    keys = cast(flat.field(0), type_.key_type)
    items = cast(flat.field(1), type_.item_type)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(_offsets(array, type_), keys, items, type=type_, mask=mask)


def _offsets(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Where each list begins in the flattened values, a null one being empty there."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(
        array.cast(
            pa.list_(pa.struct([("k", array.type.key_type), ("v", array.type.item_type)]))
        )
        if pa.types.is_map(array.type)
        else array
    )
    counts = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False)
    wide = pa.int64() if pa.types.is_large_list(type_) else pa.int32()
    return pa.array(np.concatenate(([0], np.cumsum(counts))), wide)
