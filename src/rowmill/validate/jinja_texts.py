"""A value -> the text that a `prompt_jinja` makes of it, wherever Jinja makes text.

Promises: printed, joined by `~`, formatted, or given to a filter that makes text, a null is refused, booleans, lists and
objects are JSON, numbers have their digits; what is none of these (a function, what `map` gives) is refused.
In tests, comparisons, loops and arithmetic a value is what it is in Python: booleans cannot be subclassed, and a null
that is no None would be none no longer.
Knows nothing of: rows, columns.
Source: jinja2 3.1: besides `finalize`, `~`, `%`, `TEXT.format` and the filters named here nothing makes text of a value;
methods of texts take texts alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from jinja2 import TemplateRuntimeError, Undefined, nodes, pass_context
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.runtime import Context

from rowmill.sandbox import MAX_TEXT_BYTES, MAX_WIDTH, Sandbox, TooMuch
from rowmill.validate.jinja_borders import (
    PRINTED,
    WRITERS,
    WRITTEN,
    Captures,
    MadeText,
    printed,
    refuse_borders,
    united,
    written,
)

_NUM_TEXTS = dict.fromkeys(
    (
        *("capitalize", "center", "e", "escape", "forceescape", "indent", "lower", "safe"),
        *("string", "striptags", "title", "trim", "truncate", "upper", "urlize", "wordcount"),
        "wordwrap",
    ),
    1,
) | {"replace": 3}
"""Filters -> how many of their arguments they make text of."""
_ALSO_TEXTS = frozenset(("s", "old", "new"))
"""The same, by name."""
_OF_A_NUMBER = frozenset("bcdeEfFgGnoxX%")
"""Last letters of formats that ask for a number."""
_JOINED = ({MadeText}, {MadeText, str})
"""Types of two texts that `+` joins as `~` does."""


class NullPrinted(Exception):
    """A null was about to become text."""


class Unprintable(Exception):
    """Something that is no value of a row was about to become text; holds what it is."""


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


class MinusZero(int):
    """`-0`, a whole number that has digits of its own."""

    source = "-0"

    def __str__(self) -> str:
        return self.source

    __repr__ = __str__


class PromptSandbox(Sandbox):
    """A sandbox in which values become text as the module says."""

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_printed, **options)
        self.literals: list[MadeText] = []
        for name, number in _NUM_TEXTS.items():
            self.filters[name] = _of_texts(self.filters[name], number)
        self.filters["format"] = _of_formatted(self.filters["format"])
        self.filters["join"] = _of_joined(self.filters["join"])
        self.filters["urlencode"] = _of_pairs(self.filters["urlencode"])
        self.filters["xmlattr"] = _of_attributes(self.filters["xmlattr"])
        self.filters["pprint"] = json_text
        self.filters["tojson"] = _indented
        self.filters |= {WRITTEN: written, PRINTED: partial(self._counted, _printed)}

    def joined(self, *parts: Any) -> str:
        """`a ~ b`, compiled in its place."""
        texts = list(map(plain, parts))
        return united(super().joined(*texts), texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic; `TEXT % VALUES` and `TEXT + TEXT` are none."""
        if operator == "+" and {type(left), type(right)} in _JOINED:
            return self.joined(left, right)
        if operator == "%" and isinstance(left, str):
            right = tuple(map(formatted, right)) if type(right) is tuple else formatted(right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call out of a template."""
        found = super().call(context, obj, *args, **kwargs)
        return written(found) if isinstance(obj, WRITERS) else found

    @pass_context
    def called(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> str:
        """What a `call` block puts into the prompt."""
        return str(self._counted(_printed, self.call(context, obj, *args, **kwargs)))

    def call_filter(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A filter that `map` names: by a text of the row's, perhaps, which must not make words of data."""
        if name in (WRITTEN, PRINTED):
            message = "`map` names a filter that is none"
            raise TemplateRuntimeError(message)
        return super().call_filter(name, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        refuse_borders(tree)
        found: nodes.Template = Captures(self.literals).visit(tree)
        found.set_environment(self)
        return found

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`TEXT.format` and `TEXT.format_map`."""
        inner = super().wrap_str_format(value)
        if inner is None:
            return None

        def shown(*args: Any, **kwargs: Any) -> str:
            return inner(*map(formatted, args), **_each_formatted(kwargs))

        return shown


def _printed(value: Any) -> str:
    return printed(plain(value))


def plain(value: Any) -> Any:
    """What text is made of in place of a value: a text, a number, or a name that refuses itself.

    Raises:
        NullPrinted: It is a null.
        Unprintable: It is nothing that a row could hold.
    """
    if value is None:
        raise NullPrinted
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    if isinstance(value, str | int | float | Undefined):
        return value
    raise Unprintable(type(value).__name__)


def json_text(value: Any) -> str:
    """A value as JSON, numbers by their digits: also as a filter, where a null is a value as any."""
    return _JsonText(None).of(value)


def _indented(value: Any, indent: int | str | None = None) -> str:
    """`tojson`; indented as Python's `json` does it."""
    if isinstance(indent, int):
        if indent > MAX_WIDTH:
            raise TooMuch
        indent = " " * indent
    return _JsonText(indent).of(value)


class _JsonText:
    """JSON text in the making, with the room that is left: a list may hold a list many times over."""

    def __init__(self, step: str | None) -> None:
        """Each level indented by a step, if there is one."""
        self._step, self._level, self._room = step, 0, MAX_TEXT_BYTES

    def of(self, value: Any) -> str:
        if isinstance(value, Digits | MinusZero | _Formatted):
            value = value.source
            return self._fitting(value) if isinstance(value, str) else self.of(value)
        if isinstance(value, dict):
            self._level += 1
            keys = [self._fitting(json.dumps(_key(key), ensure_ascii=False)) for key in value]
            texts = list(map(self.of, value.values()))
            pairs = [f"{key}: {text}" for key, text in zip(keys, texts, strict=True)]
            return self._enclosed("{}", pairs)
        if isinstance(value, list | tuple):
            self._level += 1
            return self._enclosed("[]", list(map(self.of, value)))
        if value is None or isinstance(value, str | int | float):
            return self._fitting(json.dumps(value, ensure_ascii=False))
        if isinstance(value, Undefined):
            return str(value)  # refuses itself, by its name
        raise Unprintable(type(value).__name__)

    def _enclosed(self, ends: str, items: list[str]) -> str:
        self._level -= 1
        comma, first, last = ", ", "", ""
        if self._step is not None and items:
            self._take(len(self._step) * (self._level + 1) * (len(items) + 1))
            last = "\n" + self._step * self._level
            first = last + self._step
            comma = "," + first
        self._take(2 * len(items) + 2)
        return ends[0] + first + comma.join(items) + last + ends[1]

    def _fitting(self, text: str) -> str:
        self._take(len(text))
        return text

    def _take(self, length: int) -> None:
        self._room -= length
        if self._room < 0:
            raise TooMuch


def _key(name: Any) -> str:
    """A key of an object; those of a template's own may be other than texts."""
    return name if isinstance(name, str) else json_text(name)


class _Formatted:
    """In the place of a value that is formatted, as a whole or a part of it."""

    source: Any

    def __str__(self) -> str:
        return str(plain(self.source))

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class _Null(_Formatted):
    source = None


class _Flag(_Formatted, int):
    source: bool

    def __format__(self, spec: str) -> str:
        is_number = spec[-1:] in _OF_A_NUMBER if spec else False
        return int.__format__(self, spec) if is_number else super().__format__(spec)


class _Items(_Formatted, list[Any]):
    source: list[Any] | tuple[Any, ...]


class _Fields(_Formatted, dict[Any, Any]):
    source: dict[Any, Any]


def formatted(value: Any) -> Any:
    """What is formatted in the place of a value: equal to it where a format looks inside or asks for a number."""
    if value is None:
        return _Null()
    found: Any
    if isinstance(value, bool):
        found = _Flag(value)
    elif isinstance(value, dict):
        found = _Fields(_each_formatted(value))
    elif isinstance(value, list | tuple):
        found = _Items(map(formatted, value))
    else:
        return plain(value)
    found.source = value
    return found


def _each_formatted(values: dict[Any, Any]) -> dict[Any, Any]:
    return {name: formatted(value) for name, value in values.items()}


def _like(inner: Callable[..., Any], outer: Callable[..., Any]) -> Callable[..., Any]:
    passes = getattr(inner, "jinja_pass_arg", None)
    if passes is not None:  # how Jinja knows what to pass first
        outer.__dict__["jinja_pass_arg"] = passes
    return outer


def _num_passed(inner: Callable[..., Any]) -> int:
    """Arguments that Jinja passes before those of the template."""
    return 1 if hasattr(inner, "jinja_pass_arg") else 0


def _of_texts(inner: Callable[..., Any], number: int) -> Callable[..., Any]:
    first = _num_passed(inner)
    stop = first + number

    def shown(*args: Any, **kwargs: Any) -> Any:
        named = {k: plain(v) if k in _ALSO_TEXTS else v for k, v in kwargs.items()}
        return inner(*args[:first], *map(plain, args[first:stop]), *args[stop:], **named)

    return _like(inner, shown)


def _of_formatted(inner: Callable[..., Any]) -> Callable[..., Any]:
    def shown(value: Any, *args: Any, **kwargs: Any) -> Any:
        return inner(plain(value), *map(formatted, args), **_each_formatted(kwargs))

    return _like(inner, shown)


def _of_joined(inner: Callable[..., Any]) -> Callable[..., Any]:
    def shown(
        context: EvalContext, value: Iterable[Any], d: Any = "", attribute: Any = None
    ) -> Any:
        if attribute is not None:
            value = map(make_attrgetter(context.environment, attribute), value)
        return inner(context, list(map(plain, value)), plain(d))

    return _like(inner, shown)


def _of_pairs(inner: Callable[..., Any]) -> Callable[..., Any]:
    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            value = value.items()
        elif value is None or isinstance(value, str | int | float | Undefined):
            return inner(plain(value))
        return inner([(plain(name), plain(one)) for name, one in value])

    return _like(inner, shown)


def _of_attributes(inner: Callable[..., Any]) -> Callable[..., Any]:
    def shown(context: EvalContext, d: dict[str, Any], autospace: bool = True) -> Any:
        """By Jinja's own rule a null is no attribute."""
        given = {k: v for k, v in d.items() if not (v is None or isinstance(v, Undefined))}
        return inner(context, {k: plain(v) for k, v in given.items()}, autospace)

    return _like(inner, shown)
