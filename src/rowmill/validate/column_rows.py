"""Rows that are columns of a `prompt` or `prompt_jinja` -> Requests."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from rowmill.errors import InvalidRow
from rowmill.rows import Request, Row
from rowmill.validate.asked import CHECKS
from rowmill.validate.columns import column_text, compile_columns, fill
from rowmill.validate.ids import canonical_id
from rowmill.validate.jinja_prompt import JinjaPrompt
from rowmill.validate.lane import ABSENT, LEAVE, Lane
from rowmill.validate.lines import Columns, shown, split_columns, value_of, what_is
from rowmill.validate.rules import Rules
from rowmill.validate.shapes import Asked, text_request


class TemplateRows:
    """Callable: Row -> Request, or RowError, by a `prompt`."""

    def __init__(self, rules: Rules, prompt: str) -> None:
        self._rules = rules
        self._template = compile_columns(prompt)
        self._of_job = rules.samplings.of_job
        texts = list(dict.fromkeys(self._template.columns))
        self._attributes = [f"text{texts.index(name)}" for name in self._template.columns]
        self._first, *self._rest = self._template.literals
        *others, self._id_column = rules.ids.names
        never = {"sampling", *others}
        self._loose: list[tuple[int, str]] = []
        self._lane = Lane(texts, self._id_column, never=never, prefix=rules.prefix)

    def __call__(self, row: Row) -> Request:
        parts: list[Any] = [self._first]
        try:
            seen: Any = self._lane.decode(row.line)
            for attribute, literal in zip(self._attributes, self._rest, strict=True):
                parts += (getattr(seen, attribute), literal)
            raw = seen.id
            if self._loose:
                self._read_loose(parts)
        except (*LEAVE, AttributeError):
            return self._long_way(row)
        if UNSET in parts:
            return self._long_way(row)
        id = b"" if raw is ABSENT else canonical_id(bytes(raw), self._id_column)
        return self._filled(Asked(row.key, id, self._of_job), parts)

    def _filled(self, asked: Asked, parts: list[str]) -> Request:
        text = "".join(parts)
        if not text:
            columns = ", ".join(f"`{name}`" for name in self._template.columns)
            reason = f"the prompt is empty, for so is {columns}; expected text"
            raise InvalidRow(reason=reason)
        return text_request(self._rules.way, asked, text, parts)

    def _read_loose(self, parts: list[Any]) -> None:
        """Texts of columns that the lane reads as JSON text, in place."""
        for i, name in self._loose:
            raw = parts[i]
            parts[i] = UNSET if raw is ABSENT else column_text(bytes(raw), name)

    def _long_way(self, row: Row) -> Request:
        columns, id = self._rules.columns(row)
        asked = _asked(self._rules, row.key, id, columns)
        parts = fill(self._template, columns)
        self._lane.learn(columns)
        known = [name for _, name in self._loose]
        for name in self._template.columns:
            if not columns[name].startswith(b'"') and name not in known:
                self._lane.loosen(name)
                known.append(name)
        self._loose = [
            (2 * i + 1, name) for i, name in enumerate(self._template.columns) if name in known
        ]
        return self._filled(asked, parts)


class JinjaRows:
    """Callable: Row -> Request, or RowError, by a `prompt_jinja`."""

    def __init__(self, rules: Rules, template: JinjaPrompt) -> None:
        self._rules = rules
        self._template = template

    def __call__(self, row: Row) -> Request:
        columns, id = self._rules.columns(row)
        asked = _asked(self._rules, row.key, id, columns)
        parts = self._template.parts(columns)
        text = "".join(parts)
        if not text:
            reason = "`prompt_jinja` gives an empty prompt for this row, expected text"
            raise InvalidRow(reason=reason)
        return text_request(self._rules.way, asked, text, parts)


def _asked(rules: Rules, key: int, id: bytes, columns: Columns) -> Asked:
    """Sampling of a row that is columns: only its column `sampling` is that, an object."""
    raw = columns.get("sampling", b"null")
    if raw == b"null":
        return Asked(key, id, rules.samplings.of_job)
    if raw[:1] != b"{":
        reason = f"`sampling` is {what_is(value_of(raw, 'sampling'))}, expected an object"
        raise InvalidRow(reason=reason)
    own = split_columns(raw)
    for name in own:
        if name not in CHECKS:
            known = ", ".join(f"`{key}`" for key in CHECKS)
            reason = f"`sampling.{shown(name)}` is unknown, known: {known}"
            raise InvalidRow(reason=reason)
    return Asked(key, id, rules.samplings.asked(own, prefix="sampling."))
