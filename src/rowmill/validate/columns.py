"""`{column}` in a prompt -> text: the smallest template there is.

Promises: `{{` and `}}` stand for braces, nothing else is special; a string goes in as it is,
a number by the digits of the source, a list or object as its JSON text.
Knows nothing of: chat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from rowmill.errors import ConfigError, InvalidRow, MissingColumn
from rowmill.validate.lines import names, shown, value_of

_MARKS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class ColumnTemplate(msgspec.Struct, frozen=True):
    """Literals and columns that take turns: literal, column, literal, ..., literal."""

    literals: tuple[str, ...]
    columns: tuple[str, ...]


def compile_columns(text: str) -> ColumnTemplate:
    """Cut a prompt at its `{column}`s.

    Raises:
        ConfigError: a single brace, or a name that is no column's; names the position.
    """
    literals, columns, start = [""], [], 0
    for match in _MARKS.finditer(text):
        literals[-1] += text[start : match.start()]
        start, mark = match.end(), match.group()
        if mark in ("{{", "}}"):
            literals[-1] += mark[0]
        elif not match.group(1):
            reason = (
                f"`prompt`: `{mark}` at character {match.start() + 1} is no column;"
                " write `{column}`, or `{{` and `}}` for braces"
            )
            raise ConfigError(reason=reason)
        else:
            columns.append(match.group(1))
            literals.append("")
    literals[-1] += text[start:]
    return ColumnTemplate(tuple(literals), tuple(columns))


def column_text(raw: bytes, name: str) -> str:
    """What a column's JSON text puts into a prompt.

    Raises:
        InvalidRow: null, or half a character.
    """
    if raw[0] == 34:
        return str(value_of(raw, name))
    if raw == b"null":
        reason = f"`{shown(name)}` is null, expected text for `{{{shown(name)}}}` in the prompt"
        raise InvalidRow(reason=reason)
    return raw.decode()


def fill(template: ColumnTemplate, columns: Mapping[str, bytes]) -> list[str]:
    """Literals and the row's texts in turn; joined, they are the prompt.

    Raises:
        InvalidRow: the row lacks a column; names it and those that are there.
    """
    parts = [template.literals[0]]
    for name, literal in zip(template.columns, template.literals[1:], strict=True):
        if name not in columns:
            reason = f"column `{shown(name)}` is absent; {names(dict(columns))}"
            raise MissingColumn(reason=reason + _way_inside(name, columns))
        parts += (column_text(columns[name], name), literal)
    return parts


def _way_inside(name: str, columns: Mapping[str, bytes]) -> str:
    """What to do where a name means a field inside a column."""
    outer, dot, _ = name.partition(".")
    if not dot or outer not in columns or not name.replace(".", "").isidentifier():
        return ""
    return f"; for a field inside `{outer}` take `prompt_jinja` and `{{{{ {name} }}}}`"
