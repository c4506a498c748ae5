"""Records -> lines for people, or plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def plain(value: Any) -> Any:
    """A record as dicts, lists, strings and numbers."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)


def lines_of(value: Any) -> Iterator[str]:
    """A record as lines; one that brings `lines()` speaks for itself."""
    speak = getattr(value, "lines", None)
    if speak is not None:
        yield from speak()
    elif isinstance(value, str):
        yield value
    else:
        yield from _tree(plain(value), "")


def _tree(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _named(str(name).replace("_", " "), part, indent)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for part in value:
            yield from _named("-", part, indent)
    else:
        yield f"{indent}{_word(value)}"


def _named(name: str, part: Any, indent: str) -> Iterator[str]:
    colon = "" if name == "-" else ":"
    if isinstance(part, dict | list) and part:
        yield f"{indent}{name}{colon}"
        yield from _tree(part, f"{indent}  ")
    else:
        yield f"{indent}{name}{colon} {_word(part)}"


def _word(value: Any) -> str:
    if value is None or value in ([], {}, ""):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
