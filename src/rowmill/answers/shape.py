"""JSON Schema -> the column type in which every value that follows it fits, or JSON text where none does.

Promises: a shape is wider than its schema, never narrower: keywords only take values away, so one of them that
says enough is enough. Exact but for two things: a property that is absent and may be null is null,
and numbers past 64 bits do not fit (see `misfit`).
Knows nothing of: Arrow.
Memory: at most `MAX_COLUMNS` parts; a schema that needs more is JSON text.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

MAX_COLUMNS = 500
MAX_DEPTH = 24
MORE = "rowmill_more"
"""Field of an object that takes what its schema allows and does not name, as JSON text."""

Kind = Literal["text", "string", "integer", "number", "boolean", "list", "object"]


class Shape(msgspec.Struct, frozen=True):
    """A column type."""

    kind: Kind
    """`text` is JSON text."""
    item: Shape | None = None
    """Of a list."""
    fields: tuple[tuple[str, Shape], ...] = ()
    """Of an object."""
    has_more: bool = False
    """Of an object: it may have properties beside its fields."""


class Misfit(NamedTuple):
    """A number that its column cannot hold."""

    path: list[str | int]
    value: Any


TEXT = Shape("text")
_SCALARS: dict[str, Shape] = {
    "string": Shape("string"),
    "integer": Shape("integer"),
    "number": Shape("number"),
    "boolean": Shape("boolean"),
}
_KIND_OF: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def shape_of(schema: Any) -> Shape:
    """The shape of a schema that `compile_schema` takes."""
    try:
        return _Shaper(schema).shape(schema, ())
    except _TooWide:
        return TEXT


def misfit(shape: Shape, value: Any) -> Misfit | None:
    """The first number in a value of this shape that 64 bits do not hold exactly."""
    if value is None or shape.kind in ("text", "string", "boolean"):
        return None
    if shape.kind in ("integer", "number"):
        return None if _fits(shape.kind, value) else Misfit([], value)
    inner: list[tuple[str | int, Shape, Any]] = []
    if shape.item is not None:
        inner = [(i, shape.item, part) for i, part in enumerate(value)]
    else:
        inner = [(name, part, value.get(name)) for name, part in shape.fields]
    for step, part, found in inner:
        wrong = misfit(part, found)
        if wrong is not None:
            return Misfit([step, *wrong.path], wrong.value)
    return None


def _fits(kind: Kind, value: Any) -> bool:
    if kind == "integer":
        return bool(-(2**63) <= value < 2**63)
    try:
        return bool(float(value) == value)
    except OverflowError:
        return False


class _TooWide(Exception):
    """More columns than a table should have."""


class _Shaper:
    """One schema, walked once; `references` are those it stands within."""

    def __init__(self, root: Any) -> None:
        self._root, self._num_columns = root, 0

    def shape(self, schema: Any, references: tuple[str, ...], depth: int = 0) -> Shape:
        self._num_columns += 1
        if self._num_columns > MAX_COLUMNS:
            raise _TooWide
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return TEXT
        if depth and schema.keys() & {"$id", "id", "$schema"}:
            return TEXT  # another document: its references start elsewhere
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference, references, depth)
        by_type = self._of_type(schema, references, depth)
        if by_type == TEXT:
            by_type = _of_values(schema)
        return self._of_parts(schema, references, depth) if by_type == TEXT else by_type

    def _referred(self, reference: str, references: tuple[str, ...], depth: int) -> Shape:
        if reference in references or not reference.startswith("#/") or "%" in reference:
            return TEXT
        found = self._root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                return TEXT
        return self.shape(found, (*references, reference), depth + 1)

    def _of_type(self, schema: dict[str, Any], refs: tuple[str, ...], depth: int) -> Shape:
        named = schema.get("type")
        kinds = set(named) if isinstance(named, list) else {named}
        kinds -= {"null"}
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if len(kinds) != 1:
            return TEXT
        kind = kinds.pop()
        if kind == "array" and isinstance(schema.get("items"), dict):
            return self._list(schema, refs, depth)
        if kind == "object" and schema.get("properties"):
            return self._object(schema, refs, depth)
        return TEXT if _is_wide(schema) else _SCALARS.get(str(kind), TEXT)

    def _list(self, schema: dict[str, Any], refs: tuple[str, ...], depth: int) -> Shape:
        if "prefixItems" in schema:
            return TEXT
        item = self.shape(schema["items"], refs, depth + 1)
        return TEXT if item == TEXT else Shape("list", item=item)

    def _object(self, schema: dict[str, Any], refs: tuple[str, ...], depth: int) -> Shape:
        properties = schema["properties"]
        has_more = (
            schema.get("additionalProperties") is not False or "patternProperties" in schema
        )
        if has_more and MORE in properties:
            return TEXT
        fields = tuple(
            (name, self.shape(part, refs, depth + 1)) for name, part in properties.items()
        )
        return Shape("object", fields=fields, has_more=has_more)

    def _of_parts(self, schema: dict[str, Any], refs: tuple[str, ...], depth: int) -> Shape:
        """By alternatives that are all of one shape, null aside; or by any one of `allOf`."""
        for keyword in ("anyOf", "oneOf"):
            parts = [p for p in schema.get(keyword, []) if not _is_null(p)]
            shapes = [self.shape(part, refs, depth + 1) for part in parts]
            if shapes and all(shape == shapes[0] for shape in shapes) and shapes[0] != TEXT:
                return shapes[0]
        for part in schema.get("allOf", []):
            shape = self.shape(part, refs, depth + 1)
            if shape != TEXT:
                return shape
        return TEXT


def _is_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    return schema.get("type") == "null" or schema.get("enum") == [None]


def _is_wide(schema: dict[str, Any]) -> bool:
    """Whether it says itself that its numbers go past 64 bits."""
    bounds = (schema.get("minimum"), schema.get("maximum"))
    return any(isinstance(bound, int) and not _fits("integer", bound) for bound in bounds)


def _of_values(schema: dict[str, Any]) -> Shape:
    """By `enum` or `const`: all of one kind, null aside."""
    values = schema["enum"] if "enum" in schema else [schema.get("const")]
    kinds = {_KIND_OF.get(type(value), "") for value in values if value is not None}
    if not all(_fits("integer", value) for value in values if type(value) is int):
        return TEXT
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    return _SCALARS.get(kinds.pop(), TEXT) if len(kinds) == 1 else TEXT
