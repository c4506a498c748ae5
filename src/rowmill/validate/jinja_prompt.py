"""`prompt_jinja` -> text: Jinja over the columns of a row, in a sandbox.

Promises: an undefined name or a null that would become text is a row error; numbers keep their digits; booleans, lists
and objects print as JSON; columns that the template does not read are not looked at.
Knows nothing of: chat templates (see measure); how values become text (jinja_texts.py), how
words are told from data (jinja_borders.py).
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import msgspec
from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables

from rowmill.errors import ConfigError, InvalidRow
from rowmill.sandbox import FAULTS, TOO_DEEP, TOO_MUCH, Sandbox, TooDeep, TooMuch
from rowmill.validate.jinja_borders import holds_border, split
from rowmill.validate.jinja_texts import (
    Digits,
    MinusZero,
    NullPrinted,
    PromptSandbox,
    Unprintable,
)
from rowmill.validate.lines import Columns, shown, value_of
from rowmill.validate.once import refuse_repeated_inside

_decode = msgspec.json.Decoder(float_hook=Digits).decode
_decode_slowly = partial(
    json.loads,
    parse_float=Digits,
    parse_int=lambda text: MinusZero() if text == "-0" else int(text),
)
_MINUS_ZERO = re.compile(rb"-0(?![.\deE])")
"""Or such letters in a text of a list or an object, which does no harm."""
_DEEP = 100
"""Levels of a value from which on it is to blame."""


class JinjaPrompt:
    """A compiled `prompt_jinja`."""

    def __init__(self, text: str) -> None:
        self._environment = PromptSandbox(undefined=StrictUndefined, keep_trailing_newline=True)
        try:
            self._template = self._environment.from_string(text)
            self.columns = _names_in(text)
            """Names that the template asks rows for."""
            self._reads = sorted(self.columns)
        except TemplateSyntaxError as error:
            reason = f"`prompt_jinja`, line {error.lineno}: {error.message}"
            raise ConfigError(reason=reason) from error

    def parts(self, columns: Columns) -> list[str]:
        """Literals and data in turn, beginning and ending with a literal.

        Raises:
            InvalidRow: the template cannot be filled from this row; holds Jinja's own words.
        """
        values = {n: _value(columns[n], n) for n in self._reads if n in columns}
        try:
            return split(self._environment.text_of(self._template, values))
        except TooDeep as error:
            raise InvalidRow(reason=_of_depth(values)) from error
        except TooMuch as error:
            raise InvalidRow(reason=f"`prompt_jinja` {TOO_MUCH}") from error
        except NullPrinted as error:
            raise InvalidRow(reason=_of_null(values)) from error
        except Unprintable as error:
            reason = f"`prompt_jinja` prints a `{error}`, expected a text, a number, a list or an object"
            raise InvalidRow(reason=reason) from error
        except (TemplateError, SecurityError) as error:
            reason = f"`prompt_jinja` cannot be filled from this row: {error.message}"
            raise InvalidRow(reason=reason) from error
        except FAULTS as error:
            # What an expression of the user's own raises; its text may hold the row's.
            reason = f"`prompt_jinja` cannot be filled from this row: {type(error).__name__}"
            raise InvalidRow(reason=reason) from error


def _names_in(text: str) -> frozenset[str]:
    """Names that a template does not make itself: a column may be called as one of Jinja's own functions is."""
    bare = Sandbox()
    bare.globals.clear()
    return frozenset(find_undeclared_variables(bare.parse(text)))


def _value(raw: bytes, name: str) -> Any:
    if holds_border(raw):
        # It could pass itself off as the template's own words.
        reason = f"`{shown(name)}` holds the noncharacter U+FDD2 or U+FDD3, expected text"
        raise InvalidRow(reason=reason)
    refuse_repeated_inside(raw, shown(name))
    try:
        value = _decode(raw)
        return _decode_slowly(raw) if raw[0] != 34 and _MINUS_ZERO.search(raw) else value
    except (msgspec.MsgspecError, RecursionError):
        return value_of(raw, shown(name))


def _of_null(values: dict[str, Any]) -> str:
    nulls = ", ".join(f"`{shown(name)}`" for name in sorted(values) if values[name] is None)
    where = f" (null: {nulls})" if nulls else ""
    return f"`prompt_jinja` prints a null of this row{where}, expected text"


def _of_depth(values: dict[str, Any]) -> str:
    name = max(values, key=lambda name: _num_levels(values[name]), default="")
    levels = _num_levels(values.get(name))
    if levels < _DEEP:
        return f"`prompt_jinja` {TOO_DEEP}"
    return f"`{shown(name)}` is nested too deeply for what `prompt_jinja` does with it ({levels} levels); flatten it"


def _num_levels(value: Any) -> int:
    num_levels, layer = 0, [value]
    while layer := [inner for inner in layer if isinstance(inner, dict | list)]:
        num_levels += 1
        layer = [
            one
            for outer in layer
            for one in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return num_levels
