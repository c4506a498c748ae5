"""JSON values that follow a schema -> one Arrow column of the type that the schema has.

Promises: a column's type comes from the schema alone, so files of one run have one type; every value that was
judged to follow the schema fits; what has no type of its own is JSON text, marked so in its field.
Knows nothing of: outcomes, files.
Memory: the values of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.answers.shape import MORE, TEXT, Shape, shape_of

if TYPE_CHECKING:
    import pyarrow as pa

PARSED_COLUMN = "parsed"
MARK = b"rowmill.json"
"""Key in a field's metadata that says that its strings are JSON text, and of what."""
_ONE_VALUE, _OTHERS = b"1", b"other properties"

FOREIGN = (TypeError, ValueError, KeyError, AttributeError)
"""What `parsed_array` raises for a value of another schema; Arrow's own errors are of these classes."""

Convert = Callable[[Any], Any]


def columns_of_schema(schema: Any, prefix: str) -> pa.Schema:
    """The column that takes the parsed answers of a run.

    Args:
        schema: the JSON Schema of every row; None where rows have none, or several: JSON text.
        prefix: what names of result columns begin with.
    """
    import pyarrow as pa

    shape = TEXT if schema is None else shape_of(schema)
    return pa.schema([_field(prefix + PARSED_COLUMN, shape)])


def parsed_array(values: Sequence[bytes | None], field: pa.Field[Any]) -> pa.Array[Any]:
    """Parsed answers as a column.

    Args:
        values: JSON texts as outcomes have them (`Outcome.parsed`); None counts as `null`.
        field: of `columns_of_schema`.
    """
    import pyarrow as pa

    if _mark(field) == _ONE_VALUE:
        texts = [None if v is None or v == b"null" else v.decode() for v in values]
        return pa.array(texts, pa.string())
    convert = _converter(field)
    read = [None if v is None else convert(msgspec.json.decode(v)) for v in values]
    column: pa.Array[Any] = pa.array(read, field.type)
    return column


def _field(name: str, shape: Shape) -> pa.Field[Any]:
    import pyarrow as pa

    if shape.kind == "object":
        fields = [_field(inner, part) for inner, part in shape.fields]
        if shape.has_more:
            fields.append(pa.field(MORE, pa.string(), metadata={MARK: _OTHERS}))
        return pa.field(name, pa.struct(fields))
    if shape.item is not None:
        return pa.field(name, pa.list_(_field("item", shape.item)))
    if shape.kind == "text":
        return pa.field(name, pa.string(), metadata={MARK: _ONE_VALUE})
    scalar = {
        "string": pa.string(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
    }
    return pa.field(name, scalar[shape.kind])


def _mark(field: pa.Field[Any]) -> bytes:
    return (field.metadata or {}).get(MARK, b"")


def _converter(field: pa.Field[Any]) -> Convert:
    """What makes of a JSON value what Arrow takes for this field."""
    import pyarrow as pa

    kind = field.type
    if _mark(field):
        return _json_text
    if pa.types.is_struct(kind):
        return _struct_converter(list(kind))
    if pa.types.is_list(kind):
        item = _converter(kind.value_field)
        return lambda value: None if value is None else [item(part) for part in value]
    if pa.types.is_int64(kind):
        return lambda value: (
            None if value is None else int(value)
        )  # 1.0 is an integer in JSON Schema
    if pa.types.is_float64(kind):
        return lambda value: None if value is None else float(value)
    return lambda value: value


def _struct_converter(fields: list[pa.Field[Any]]) -> Convert:
    has_more = bool(fields) and _mark(fields[-1]) == _OTHERS
    named = fields[:-1] if has_more else fields
    converters = [(field.name, _converter(field)) for field in named]
    names = {field.name for field in named}

    def convert(value: Any) -> Any:
        if value is None:
            return None
        found = {name: inner(value.get(name)) for name, inner in converters}
        if has_more:
            others = {name: part for name, part in value.items() if name not in names}
            found[MORE] = _json_text(others or None)
        return found

    return convert


def _json_text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
