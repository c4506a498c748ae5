"""`prompt_jinja` -> text: Jinja over the columns of a row, in a sandbox.

Promises: an undefined name or a null that would be printed is a row error; numbers keep their digits;
lists and objects print as JSON.
Knows nothing of: chat templates (see measure).
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables

from rowmill.errors import ConfigError, InvalidRow
from rowmill.sandbox import TOO_MUCH, Sandbox, TooMuch
from rowmill.validate.lines import Columns, shown, value_of
from rowmill.validate.once import refuse_repeated_inside

_OPEN, _CLOSE = "\ufdd2", "\ufdd3"  # noncharacters: no text for interchange holds them
_BORDER = re.compile(f"({_OPEN}|{_CLOSE})")
_BORDER_IN_JSON = re.compile(rb"\xef\xb7[\x92\x93]|\\ufdd[23]", re.IGNORECASE)


class Digits(float):
    """A number that prints as it stood in the source."""

    def __new__(cls, source: str) -> Digits:
        number = super().__new__(cls, source)
        number.source = source
        return number

    source: str

    def __str__(self) -> str:
        return self.source

    __repr__ = __str__


class _Null(Exception):
    """A null was about to be printed."""


_decode = msgspec.json.Decoder(float_hook=Digits).decode


class JinjaPrompt:
    """A compiled `prompt_jinja`."""

    def __init__(self, text: str) -> None:
        environment = Sandbox(
            undefined=StrictUndefined, finalize=_printed, keep_trailing_newline=True
        )
        self._environment = environment
        environment.filters["tojson"] = _json_text
        try:
            self._template = environment.from_string(text)
            self.columns = frozenset(find_undeclared_variables(environment.parse(text)))
            """Names that the template asks rows for."""
        except TemplateSyntaxError as error:
            reason = f"`prompt_jinja`, line {error.lineno}: {error.message}"
            raise ConfigError(reason=reason) from error

    def parts(self, columns: Columns) -> list[str]:
        """Literals and data in turn, beginning and ending with a literal.

        Raises:
            InvalidRow: the template cannot be filled from this row; holds Jinja's own words.
        """
        for name, raw in columns.items():
            if _BORDER_IN_JSON.search(raw):
                # It could pass itself off as the template's own words.
                reason = (
                    f"`{shown(name)}` holds the noncharacter U+FDD2 or U+FDD3, expected text"
                )
                raise InvalidRow(reason=reason)
        values = {name: _value(raw, name) for name, raw in columns.items()}
        try:
            return _split(self._environment.text_of(self._template, values))
        except TooMuch as error:
            raise InvalidRow(reason=f"`prompt_jinja` {TOO_MUCH}") from error
        except _Null as error:
            reason = "`prompt_jinja` prints a null of this row, expected text"
            raise InvalidRow(reason=reason) from error
        except (TemplateError, SecurityError) as error:
            reason = f"`prompt_jinja` cannot be filled from this row: {error.message}"
            raise InvalidRow(reason=reason) from error
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # What an expression of the user's own raises; its text may hold the row's.
            reason = f"`prompt_jinja` cannot be filled from this row: {type(error).__name__}"
            raise InvalidRow(reason=reason) from error


def _value(raw: bytes, name: str) -> Any:
    if raw[:1] in b"[{":
        refuse_repeated_inside(raw, shown(name))
    try:
        return _decode(raw)
    except msgspec.MsgspecError:
        return value_of(raw, shown(name))


def _printed(value: Any) -> Any:
    """What an expression prints, in borders that tell it from the template's own text."""
    if value is None:
        raise _Null
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, dict | list):
        value = _json_text(value)
    return f"{_OPEN}{value}{_CLOSE}"


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (
            f"{json.dumps(k, ensure_ascii=False)}: {_json_text(v)}" for k, v in value.items()
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    return value.source if isinstance(value, Digits) else json.dumps(value, ensure_ascii=False)


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for piece in _BORDER.split(text):
        if piece not in (_OPEN, _CLOSE):
            parts[-1] += piece
            continue
        was_inside = depth > 0
        depth += 1 if piece == _OPEN else -1
        if was_inside != (depth > 0):  # a macro's output lies in borders of its own
            parts.append("")
    return parts if len(parts) % 2 else [*parts, ""]
