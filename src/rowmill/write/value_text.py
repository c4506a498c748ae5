"""Arrow values -> texts: as they stand in CSV and in columns of text, or as JSON.

Promises: an exact text for each value, whatever its type; null stays null.
Knows nothing of: files, quoting.
Memory: one batch.

Numbers by their digits (decimals as text in JSON), times as ISO 8601 with all their digits, bytes in base64,
NaN and infinities by name (as text in JSON); lists are JSON lists, structs objects, maps lists of pairs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

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
    if isinstance(array, pa.ExtensionArray):
        return _texts(array.storage, quoted=quoted)
    if types.is_dictionary(type_):
        return _texts(array.dictionary_decode(), quoted=quoted)
    if types.is_run_end_encoded(type_):
        return _texts(pa.compute.run_end_decode(array), quoted=quoted)
    if types.is_nested(type_):
        return _nested(array)
    if types.is_integer(type_) or types.is_boolean(type_) or types.is_null(type_):
        return [None if v is None else _word(v) for v in array.to_pylist()]
    if types.is_floating(type_):
        return [None if v is None else _float_text(v, quoted) for v in array.to_pylist()]
    bare = _bare(array)
    return [None if t is None else _quote(t) for t in bare] if quoted else bare


def _bare(array: pa.Array) -> Texts:
    """Texts of values that JSON has no word for but a string."""
    import pyarrow as pa

    types, type_ = pa.types, array.type
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return list(array.to_pylist())
    if (
        types.is_binary(type_)
        or types.is_large_binary(type_)
        or types.is_fixed_size_binary(type_)
        or types.is_binary_view(type_)
    ):
        return _each(array, lambda v: base64.b64encode(v).decode())
    if types.is_decimal(type_):
        return _each(array, lambda v: format(v, "f"))
    if types.is_timestamp(type_):
        texts = _timestamps(array).cast(pa.string()).to_pylist()
        zone = "Z" if type_.tz is not None else ""
        return [None if t is None else t.replace(" ", "T", 1) + zone for t in texts]
    if types.is_duration(type_):
        return [None if v is None else f"{v} {type_.unit}" for v in _numbers(array)]
    if types.is_date(type_) or types.is_time(type_):
        return list(array.cast(pa.string()).to_pylist())
    return _each(array, str)


def _timestamps(array: pa.Array) -> pa.Array:
    """Without their zone, in UTC: a text with a zone would need the zone's rules."""
    import pyarrow as pa

    return array.cast(pa.timestamp(array.type.unit))


def _numbers(array: pa.Array) -> list[int | None]:
    import pyarrow as pa

    return list(array.cast(pa.int64()).to_pylist())


def _each(array: pa.Array, text: Callable[[Any], str]) -> Texts:
    return [None if v is None else text(v) for v in array.to_pylist()]


def _nested(array: pa.Array) -> Texts:
    import pyarrow as pa

    types, type_ = pa.types, array.type
    if types.is_union(type_):
        return [None if v.as_py() is None else _texts_of_one(v) for v in array]
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


def _texts_of_one(value: Any) -> str | None:
    import pyarrow as pa

    inner = value.value
    return _texts(pa.array([inner.as_py()], inner.type), quoted=True)[0]


def _lists(array: pa.Array, *, pairs: bool) -> Texts:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(array).to_pylist()
    flat = array.flatten()
    if pairs:
        keys, values = (_texts(flat.field(i), quoted=True) for i in range(2))
        items: Texts = [
            f"[{k or 'null'},{v or 'null'}]" for k, v in zip(keys, values, strict=True)
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


def _float_text(value: float, quoted: bool) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        name = "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
        return f'"{name}"' if quoted else name
    return repr(value)


def _word(value: int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _quote(text: str) -> str:
    return _encode(text).decode()
