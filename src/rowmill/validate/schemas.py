"""Is this object a JSON Schema? Looked at before anything is asked, so that a wrong one fails its row and not an engine.

Promises: wrong types of known keywords and unknown type names are found, with the path to them;
what passes can be compiled, so every answer to it can be judged.
Knows nothing of: what an engine's grammar compiler supports beyond that.
Source: JSON Schema 2020-12, core and validation vocabularies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rowmill.answers import UnusableSchema, compile_schema

_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_SCHEMA = ("additionalProperties", "contains", "else", "if", "not", "propertyNames", "then")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAPS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_COUNTS = ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties")
_NUMBERS = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf")
_STRINGS = ("$id", "$ref", "$schema", "description", "format", "pattern", "title")


def schema_mistake(schema: Any, where: str = "schema") -> str:
    """The first mistake, as `PATH is FOUND, expected ...`; empty where there is none."""
    try:
        mistake = next(_mistakes(schema, where, schema), "")
        if not mistake:
            compile_schema(schema)
    except RecursionError:
        return f"`{where}` is nested too deeply, expected a flatter schema"
    except UnusableSchema as error:
        return f"`{where}` {error}"
    return mistake


def _mistakes(schema: Any, where: str, root: Any) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"`{where}` is no object, expected a JSON Schema"
        return
    yield from _keyword_mistakes(schema, where, root)
    for name in _SCHEMA:
        if name in schema:
            yield from _mistakes(schema[name], f"{where}.{name}", root)
    yield from _item_mistakes(schema, where, root)
    for name in _SCHEMA_MAPS:
        children = schema.get(name, {})
        if not isinstance(children, dict):
            yield f"`{where}.{name}` is no object, expected schemas by name"
            continue
        for child in children.values():
            yield from _mistakes(child, f"{where}.{name}.*", root)


def _item_mistakes(schema: dict[str, Any], where: str, root: Any) -> Iterator[str]:
    items = schema.get("items", [])
    for child in items if isinstance(items, list) else [items]:
        yield from _mistakes(child, f"{where}.items", root)
    for name in _SCHEMA_LISTS:
        if name not in schema:
            continue
        if not isinstance(schema[name], list) or not schema[name]:
            yield f"`{where}.{name}` is no non-empty list, expected schemas"
            continue
        for i, child in enumerate(schema[name]):
            yield from _mistakes(child, f"{where}.{name}[{i}]", root)


def _keyword_mistakes(schema: dict[str, Any], where: str, root: Any) -> Iterator[str]:
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in _TYPES:
            yield f"`{where}.type` is unknown, expected one of {', '.join(sorted(_TYPES))}"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"`{where}.required` is no list of strings, expected names of properties"
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f"`{where}.enum` is no non-empty list, expected the allowed values"
    yield from _string_mistakes(schema, where, root)
    yield from _number_mistakes(schema, where)


def _string_mistakes(schema: dict[str, Any], where: str, root: Any) -> Iterator[str]:
    for name in _STRINGS:
        if name in schema and not isinstance(schema[name], str):
            yield f"`{where}.{name}` is no string"
    pattern = schema.get("pattern", "")
    if isinstance(pattern, str) and not is_balanced(pattern):
        yield f"`{where}.pattern` has an open bracket, expected a regular expression"
    reference = schema.get("$ref")
    if (
        isinstance(reference, str)
        and reference.startswith("#")
        and not _resolves(reference, root)
    ):
        yield f"`{where}.$ref` points to nothing in this schema"


def is_balanced(pattern: str) -> bool:
    """True where every bracket of a regular expression is closed: what all dialects agree on."""
    depth, in_class, at = 0, False, 0
    while at < len(pattern):
        mark = pattern[at]
        if mark == "\\":
            at += 1
        elif in_class:
            in_class = mark != "]"
        elif mark == "[":
            in_class = True
        elif mark in "()":
            depth += 1 if mark == "(" else -1
        if depth < 0:
            return False
        at += 1
    return depth == 0 and not in_class and at == len(pattern)


def _number_mistakes(schema: dict[str, Any], where: str) -> Iterator[str]:
    for name in (*_COUNTS, *_NUMBERS):
        value = schema.get(name, 1)
        is_number = isinstance(value, int | float) and math.isfinite(value)
        # Draft 4 wrote `exclusiveMaximum: true`; engines read it so.
        is_flag = isinstance(value, bool)
        if (is_flag and not name.startswith("exclusive")) or not is_number:
            yield f"`{where}.{name}` is no number"
        elif name in _COUNTS and (value < 0 or value != int(value)):
            yield f"`{where}.{name}` is no whole number of 0 or more"


def _resolves(reference: str, root: Any) -> bool:
    if not reference.startswith("#/"):
        return True  # `#` itself, or an anchor
    found = root
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return False
    return True
