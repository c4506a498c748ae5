"""Plain values -> TOML, as `tomllib` reads it back.

Promises: what was loaded from a job file comes back equal; None is left out.
Knows nothing of: jobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any


def toml_of(tree: Mapping[str, Any]) -> str:
    """A tree of values; tables of the top level stand under their heads, deeper ones inline."""
    return "".join(f"{line}\n" for line in _lines(tree))


def _lines(tree: Mapping[str, Any]) -> Iterator[str]:
    for key, value in tree.items():
        if value is not None and not (isinstance(value, Mapping) and value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield f"\n[{_key(key)}]"
            yield from (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for one character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
