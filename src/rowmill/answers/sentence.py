"""What a validator found -> a sentence: where in the answer, what stands there, what the schema expects.

Promises: one line; names of properties and the schema's own words, but no value of the answer.
Knows nothing of: where the answer came from.
"""

from __future__ import annotations

import json
from typing import Any

from rowmill.answers.compiled import pointer

_MAX_SHOWN = 80
_KINDS = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "a list",
    "object": "an object",
}
_BOUNDS = {
    "minimum": "{} or more",
    "maximum": "{} or less",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}
_SIZES = {
    "minLength": ("characters", "or more"),
    "maxLength": ("characters", "or less"),
    "minItems": ("items", "or more"),
    "maxItems": ("items", "or less"),
    "minProperties": ("properties", "or more"),
    "maxProperties": ("properties", "or less"),
}


def sentence_of(error: Any) -> str:
    """The sentence of a `jsonschema_rs.ValidationError`."""
    where = pointer(error.instance_path) or "answer"
    return f"{where}: {_found_and_expected(error)}"


def kind_of(value: Any) -> str:
    """What a JSON value is, in words, without the value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def _found_and_expected(error: Any) -> str:
    found, kind = kind_of(error.instance), error.kind
    name, value = kind.name, kind.value
    if name == "type":
        return f"{found}, expected {_either(value)}"
    if name == "required":
        return f"{found} without `{word(value)}`, expected that property"
    if name in ("additionalProperties", "unevaluatedProperties"):
        return f"{found} with a property that the schema does not name"
    if name in ("enum", "const"):
        return f"{found}, expected {_one_of(value if name == 'enum' else [value])}"
    if name == "falseSchema":
        return f"{found}, expected nothing there"
    if name in _BOUNDS:
        return f"{found}, expected {_BOUNDS[name].format(value)}"
    if name in _SIZES:
        unit, direction = _SIZES[name]
        return f"{found} of {len(error.instance)} {unit}, expected {value} {direction}"
    return f"{found}, {_expected(name, kind)}"


def _expected(name: str, kind: Any) -> str:
    if name == "pattern":
        return f"expected a match of `{word(kind.value)}`"
    if name in ("anyOf", "oneOf"):
        types = _types_of(getattr(kind, "context", []))
        return f"expected {_either(types)}" if types else f"expected what `{name}` allows"
    return f"expected what `{name}` allows"


def _types_of(branches: list[list[Any]]) -> list[str]:
    """Types that alternatives ask for, where a wrong type is all that is wrong with each."""
    types: list[str] = []
    for errors in branches:
        if len(errors) != 1 or errors[0].kind.name != "type":
            return []
        types += errors[0].kind.value
    return types


def _either(types: list[str]) -> str:
    words = list(dict.fromkeys(_KINDS[name] for name in types))
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _one_of(values: list[Any]) -> str:
    listed = ", ".join(json.dumps(value) for value in values[:20])
    if len(values) > 20 or len(listed) > _MAX_SHOWN:
        return f"one of the {len(values)} values that the schema lists"
    return f"one of {listed}" if len(values) > 1 else listed


def word(text: Any) -> str:
    """A name or a pattern, safe to print on one line."""
    shown = json.dumps(text, ensure_ascii=False)[1:-1]
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
