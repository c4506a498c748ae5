"""Columns of any Arrow type -> those that every store has: truth, numbers, texts, JSON texts, dates and times.

Promises: no value is changed; what has no place as itself is a text as results show it.
Knows nothing of: stores.
Memory: one batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowmill.write.kinds import JSON_MARK, is_marked
from rowmill.write.value_text import json_texts, plain_texts

if TYPE_CHECKING:
    import pyarrow as pa


def flat_field(field: pa.Field) -> pa.Field:
    """The field that a column becomes."""
    import pyarrow as pa

    kind = _scalar(field.type)
    if kind is not None and not is_marked(field):
        return pa.field(field.name, kind)
    mark = JSON_MARK if is_marked(field) or _is_nested(field.type) else None
    return pa.field(field.name, pa.string(), metadata=mark)


def flat_array(array: pa.Array, field: pa.Field) -> pa.Array:
    """The values of a column of such a field, as those of `flat_field`."""
    import pyarrow as pa

    kind = _scalar(field.type)
    if kind is not None and not is_marked(field):
        return array.cast(kind)
    if is_marked(field):
        return array.cast(pa.string())
    return json_texts(array) if _is_nested(field.type) else plain_texts(array)


def _scalar(type_: pa.DataType) -> pa.DataType | None:
    """The one type for all of its kind; None for what becomes a text."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(type_):
        return pa.bool_()
    if types.is_integer(type_) and not types.is_uint64(type_):
        return pa.int64()
    if types.is_floating(type_):
        return pa.float64()
    if types.is_date(type_):
        return pa.date32()
    if types.is_timestamp(type_) and type_.unit != "ns":
        return pa.timestamp("us", type_.tz)
    if types.is_string(type_) or types.is_large_string(type_):
        return pa.string()
    return None


def _is_nested(type_: pa.DataType) -> bool:
    import pyarrow as pa

    if isinstance(type_, pa.ExtensionType | pa.BaseExtensionType):
        type_ = type_.storage_type
    return bool(pa.types.is_nested(type_))
