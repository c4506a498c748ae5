"""Arrow values -> texts: as they stand in CSV and in columns of text, or as JSON.

Promises: an exact text for each value, whatever its type; null stays null.
Knows nothing of: files, quoting.
Memory: one batch.

Scalars are shown as JSON Lines show them, lists are JSON lists, structs objects, maps lists of pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.shown.values import values
from rowmill.write.kinds import is_marked

if TYPE_CHECKING:
    import pyarrow as pa

Texts = list[str | None]

_encode = msgspec.json.Encoder().encode


def plain_texts(array: pa.Array) -> pa.Array:
    """One text a value: scalars bare, lists and structs as JSON."""
    import pyarrow as pa

    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array
    if _is_cast_to_text(array.type):
        return array.cast(pa.string())
    return pa.array(_texts(array, quoted=False), pa.string())


def json_texts(array: pa.Array) -> pa.Array:
    """One JSON text a value."""
    import pyarrow as pa

    return pa.array(_texts(array, quoted=True), pa.string())


def _is_cast_to_text(type_: pa.DataType) -> bool:
    """Whether Arrow's own texts are ours."""
    import pyarrow as pa

    types = pa.types
    return (
        types.is_integer(type_)
        or types.is_boolean(type_)
        or types.is_string_view(type_)
        or types.is_null(type_)
    )


def _texts(array: pa.Array, *, quoted: bool) -> Texts:
    """Texts of the values; with `quoted`, strings in JSON's quotes."""
    import pyarrow as pa

    types, type_ = pa.types, array.type
    if isinstance(array, pa.ExtensionArray) and types.is_nested(array.storage.type):
        return _texts(array.storage, quoted=quoted)
    if types.is_dictionary(type_):
        return _texts(array.dictionary_decode(), quoted=quoted)
    if types.is_run_end_encoded(type_):
        return _texts(pa.compute.run_end_decode(array), quoted=quoted)
    if types.is_nested(type_) and not types.is_union(type_):
        return _nested(array)
    return [
        value if value is None or (isinstance(value, str) and not quoted) else _quote(value)
        for value in values(array)
    ]


def _nested(array: pa.Array) -> Texts:
    import pyarrow as pa

    types, type_ = pa.types, array.type
    if types.is_struct(type_):
        names = [_quote(field.name) for field in type_]
        columns = [
            # A JSON text is JSON already.
            _texts(array.field(i), quoted=not is_marked(type_.field(i)))
            for i in range(type_.num_fields)
        ]
        valid = array.is_valid().to_pylist()
        return [
            "{"
            + ",".join(f"{n}:{c[i] or 'null'}" for n, c in zip(names, columns, strict=True))
            + "}"
            if is_there
            else None
            for i, is_there in enumerate(valid)
        ]
    if types.is_map(type_):
        array = array.cast(
            pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)]))
        )
        return _lists(array, pairs=True)
    return _lists(array, pairs=False)


def _lists(array: pa.Array, *, pairs: bool) -> Texts:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array).to_pylist()
    flat = array.flatten()
    if pairs:
        keys, items_ = (_texts(flat.field(i), quoted=True) for i in range(2))
        items: Texts = [
            f"[{k or 'null'},{v or 'null'}]" for k, v in zip(keys, items_, strict=True)
        ]
    else:
        items = _texts(flat, quoted=True)
    assert isinstance(array, pa.Array)
    found: Texts = []
    at = 0
    for length in lengths:
        if length is None:
            found.append(None)
            continue
        found.append("[" + ",".join(item or "null" for item in items[at : at + length]) + "]")
        at += length
    return found


def _quote(value: Any) -> str:
    return _encode(value).decode()
