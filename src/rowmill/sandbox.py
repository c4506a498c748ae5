"""A Jinja template of a stranger's -> text: it reaches nothing but its values, and ends.

Promises: no attribute that begins with an underscore is reached, and one spelt out is refused before any row is read;
one rendering makes a bounded number of turns (of loops and macros) and a bounded amount of text, whatever the template
says: doubled strings, huge powers, paddings and recursion included.
Knows nothing of: what is rendered for what.
Memory: twice `MAX_TEXT_BYTES`, in the worst case. Time: a look-up a turn, 0.2 us.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jinja2 import Template, TemplateSyntaxError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_TURNS = 250_000
MAX_TEXT_BYTES = 64 * 2**20
"""As long as the longest line of an input may be."""
MAX_WIDTH = 1_000_000
MAX_INTEGER_BITS = 100_000
TOO_MUCH = (
    f"does more than it may for one row: {MAX_TURNS:,} turns of its loops, {MAX_TEXT_BYTES >> 20} MiB"
    " of text"
)
TOO_DEEP = (
    "goes too deep: its macros call each other without an end, or a value is nested too deeply"
)
FAULTS = (
    ArithmeticError,
    AssertionError,  # of Jinja's own filters: `truncate`
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What an expression raises on values that it was not written for."""

_DUNDER = re.compile(r"__\w+__")
_WIDTH = re.compile(r"\d{7,}")
_NESTED = re.compile(r"\{[^{}]*:[^{}]*\{")
"""A field of a format whose width is given beside it."""
_GROWING = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs", "join"))
"""Methods of texts whose result may be far longer than what they are given."""


class TooMuch(Exception):
    """The template was ended."""


class TooDeep(TooMuch):
    """It, or a value that it was given, is nested deeper than Python calls go."""


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for templates that nobody here wrote."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, *, finalize: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self._budget = threading.local()
        super().__init__(finalize=partial(self._counted, finalize), **options)
        del self.globals["lipsum"]
        for name in ("center", "indent", "wordwrap", "round", "format", "join", "replace"):
            self.filters[name] = _narrow(self.filters[name])

    def text_of(self, template: Template, values: dict[str, Any]) -> str:
        """Render.

        Raises:
            TooMuch: It makes too many turns, too much text, or (TooDeep) calls too deep.
            jinja2.TemplateError: As Jinja has it, SecurityError included.
        """
        self._budget.turns, self._budget.room = MAX_TURNS, MAX_TEXT_BYTES
        try:
            return template.render(values)
        except RecursionError as error:
            raise TooDeep from error
        except MemoryError as error:
            raise TooMuch from error

    @property
    def turn(self) -> None:
        """One more turn: looked up in each body of a loop or macro, as a call would cost twenty times as much."""
        left = getattr(self._budget, "turns", MAX_TURNS) - 1
        if left < 0:
            raise TooMuch
        self._budget.turns = left

    def joined(self, *parts: Any) -> str:
        """`a ~ b`, compiled in its place."""
        texts = list(map(str, parts))
        _refuse_above(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic whose result may be of any size."""
        if operator == "+":
            _refuse_above(_length(left) + _length(right))
        elif operator == "*":
            _refuse_product(left, right)
        elif operator == "**":
            _refuse_power(left, right)
        elif isinstance(left, str) and _WIDTH.search(left):
            raise TooMuch
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """A call out of a template."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _refuse_growth(obj.__name__, owner, args)
        return super().call(context, obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`TEXT.format`, which Jinja makes safe but not small."""
        inner = super().wrap_str_format(value)
        if inner is None:
            return None
        text: str = value.__self__

        def formatted(*args: Any, **kwargs: Any) -> str:
            given = (*args, *kwargs.values())
            is_wide = any(isinstance(v, int) and abs(v) > MAX_WIDTH for v in given)
            if _WIDTH.search(text) or (is_wide and _NESTED.search(text)):
                raise TooMuch
            return inner(*args, **kwargs)

        return formatted

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Const)):
            _refuse_dunder(node)
        for block in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            block.body.insert(0, nodes.ExprStmt(nodes.EnvironmentAttribute("turn")))  # type: ignore[attr-defined]
        found: nodes.Template = _Concats().visit(tree)
        found.set_environment(self)
        return found

    def _counted(self, inner: Callable[[Any], Any] | None, value: Any) -> Any:
        """What an expression prints takes from the room there is."""
        shown = inner(value) if inner is not None else value
        room = getattr(self._budget, "room", MAX_TEXT_BYTES) - _length(shown)
        if room < 0:
            raise TooMuch
        self._budget.room = room
        return shown


class _Concats(NodeTransformer):
    """`a ~ b` has no hook of its own."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802 - Jinja's own protocol
        parts = [self.visit(part) for part in node.nodes]
        return nodes.Call(nodes.EnvironmentAttribute("joined"), parts, [], None, None)


def _refuse_dunder(node: nodes.Node) -> None:
    """Nobody needs them, and whoever spells them out looks for a way out."""
    name = node.attr if isinstance(node, nodes.Getattr) else getattr(node, "value", None)
    if isinstance(name, str) and (found := _DUNDER.fullmatch(name)):
        message = f"`{found.group()}` is an attribute that no template may reach; leave it out"
        raise TemplateSyntaxError(message, node.lineno)


def _narrow(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose result may be as wide as a number says."""

    def narrowed(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and abs(value) > MAX_WIDTH:
                raise TooMuch
        texts = [value for value in args if isinstance(value, str)]
        if texts and _WIDTH.search(texts[0][:MAX_WIDTH]) and "%" in texts[0]:
            raise TooMuch
        found = inner(*args, **kwargs)
        _refuse_above(_length(found))
        return found

    narrowed.__dict__.update(inner.__dict__)  # how Jinja knows what to pass first
    return narrowed


def _refuse_growth(method: str, text: str, args: Sequence[Any]) -> None:
    if method == "replace" and len(args) >= 2:
        _refuse_above((text.count(str(args[0])) + 1) * len(str(args[1])))
    elif method in _GROWING:
        widest = max((abs(v) for v in args if isinstance(v, int)), default=0)
        longest = max((len(v) for v in args if hasattr(v, "__len__")), default=0)
        if widest > MAX_WIDTH:
            raise TooMuch
        _refuse_above(len(text) * max(1, longest) if method == "join" else 0)


def _refuse_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_INTEGER_BITS:
            raise TooMuch
        return
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int):
            _refuse_above(_length(many) * times)


def _refuse_power(left: Any, right: Any) -> None:
    is_whole = isinstance(left, int) and isinstance(right, int)
    if is_whole and left.bit_length() * abs(right) > MAX_INTEGER_BITS:
        raise TooMuch


def _refuse_above(length: int) -> None:
    if length > MAX_TEXT_BYTES:
        raise TooMuch


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0
