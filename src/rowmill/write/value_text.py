"""Arrow values -> texts: as they stand in CSV and in columns of text, or as JSON.

Promises: an exact text for each value, whatever its type; null stays null.
Knows nothing of: files, quoting.
Memory: one batch.

Scalars are shown as JSON Lines show them, lists, structs and maps by the same table as JSON
that may hold what is JSON text already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rowmill.shown.values import is_text, values
from rowmill.write.kinds import is_marked

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
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
            _texts(_field(array, i), quoted=not is_marked(type_.field(i)))
            for i in range(type_.num_fields)
        ]
        return [
            _object(
                [
                    (name, column[at] or "null")
                    for name, column in zip(names, columns, strict=True)
                ]
            )
            if is_there
            else None
            for at, is_there in enumerate(array.is_valid().to_pylist())
        ]
    if types.is_map(type_):
        return _maps(array)
    items = _texts(array.flatten(), quoted=True)
    return _joined(array, [item or "null" for item in items], _list)


def _field(array: pa.StructArray, at: int) -> pa.Array:
    """A column of structs. One of nulls alone may come out of pyarrow's casts with a wrong length (26.0.1)."""
    import pyarrow as pa

    column = array.field(at)
    return pa.nulls(len(array)) if pa.types.is_null(column.type) else column


def _maps(array: pa.Array) -> Texts:
    """Objects where each key is a text and stands once, else lists of pairs."""
    import pyarrow as pa

    kind = array.type
    array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    keys, items = (_texts(_field(array.flatten(), at), quoted=True) for at in range(2))
    pairs = [(key or "null", item or "null") for key, item in zip(keys, items, strict=True)]
    return _joined(array, pairs, _object if is_text(kind.key_type) else _pairs)


def _joined(array: pa.Array, items: Sequence[T], join: Callable[[Sequence[T]], str]) -> Texts:
    """The items of each list of an array as one text."""
    import pyarrow.compute as pc

    found: Texts = []
    at = 0
    for length in pc.list_value_length(array).to_pylist():
        found.append(None if length is None else join(items[at : at + length]))
        at += length or 0
    return found


def _list(items: Sequence[str]) -> str:
    return f"[{','.join(items)}]"


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return _list([_list(pair) for pair in pairs])


def _object(pairs: Sequence[tuple[str, str]]) -> str:
    if len({key for key, _ in pairs}) < len(pairs):
        return _pairs(pairs)
    return "{" + ",".join(f"{key}:{item}" for key, item in pairs) + "}"


def _quote(value: Any) -> str:
    return _encode(value).decode()
