"""A `prompt_jinja` as it is rendered -> its own words and a row's data, told apart by borders around what is printed.

Promises: data is never taken for the template's own words; what a template makes of its own output (a `set` block, what
a macro gives) is a text without borders to whoever looks at it, and knows its words where it is printed as it is.
Knows nothing of: how values become text (jinja_texts.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.runtime import BlockReference, LoopContext, Macro
from jinja2.visitor import NodeTransformer

from rowmill.errors import InvalidRow

WRITTEN, PRINTED = "written aside", "printed"
"""Names of filters that no template can spell."""
WRITERS = (Macro, BlockReference, LoopContext)
"""What gives output of the template when it is called."""

_OPEN, _CLOSE = "\ufdd2", "\ufdd3"  # noncharacters: no text for interchange holds them
_BORDER = re.compile(f"({_OPEN}|{_CLOSE})")
_IN_JSON = re.compile(rb"\xef\xb7[\x92\x93]|\\ufdd[23]", re.IGNORECASE)


class MadeText(str):
    """A text that a template made, of its own words and of data: a text as any, but it prints what is what.

    Cut at its ends it is one still; all else that is made of it (`upper`, `[:2]`, `replace`) is a plain text, so data.
    """

    _bordered: str  # out of a template's reach, as all names with an underscore are

    def __new__(cls, text: str = "", bordered: str | None = None) -> MadeText:
        """Without borders it is data: so where somebody makes a text of the same type."""
        made = super().__new__(cls, text)
        made._bordered = within(text) if bordered is None else bordered
        return made

    def strip(self, chars: str | None = None, /) -> MadeText:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> MadeText:
        text = super().lstrip(chars)
        return MadeText(text, _cut(self._bordered, len(self) - len(text), len(self)))

    def rstrip(self, chars: str | None = None, /) -> MadeText:
        text = super().rstrip(chars)
        return MadeText(text, _cut(self._bordered, 0, len(text)))


_bordered_of = attrgetter("_bordered")


def within(value: Any) -> str:
    """Data in borders.

    Raises:
        InvalidRow: It holds a border, which formats make of a number (`%c`).
    """
    text = f"{value}"
    if _OPEN in text or _CLOSE in text:
        reason = (
            "`prompt_jinja` makes the noncharacter U+FDD2 or U+FDD3 of this row, expected text"
        )
        raise InvalidRow(reason=reason)
    return f"{_OPEN}{text}{_CLOSE}"


def printed(value: Any) -> str:
    """What an expression puts into the prompt, in borders that tell it from the template's own words."""
    return str(_bordered_of(value)) if type(value) is MadeText else within(value)


def written(text: str) -> str:
    """What a template wrote aside, without borders where it is looked at."""
    bare = str(text).replace(_OPEN, "").replace(_CLOSE, "")
    return MadeText(bare, text) if type(text) is str else bare


def united(text: str, parts: Sequence[Any]) -> str:
    """`text` is the parts joined: words stay words."""
    if not any(type(part) is MadeText for part in parts):
        return text
    return MadeText(text, "".join(map(printed, parts)))


def holds_border(raw: bytes) -> bool:
    """Whether JSON text could pass itself off as the template's own words."""
    return _IN_JSON.search(raw) is not None


def split(text: str) -> list[str]:
    """Words and data in turn, beginning and ending with words."""
    parts = [""]
    for piece in _BORDER.split(text):
        if piece in (_OPEN, _CLOSE):
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _cut(bordered: str, start: int, stop: int) -> str:
    """From one character to another, borders not counted; all borders stay."""
    kept, at = [], 0
    for piece in _BORDER.split(bordered):
        if piece in (_OPEN, _CLOSE):
            kept.append(piece)
            continue
        kept.append(piece[max(start - at, 0) : max(stop - at, 0)])
        at += len(piece)
    return "".join(kept)


class Captures(NodeTransformer):
    """Has borders kept out of what a template looks at, and its own literals known as words."""

    def __init__(self, literals: list[MadeText]) -> None:
        self._literals = literals  # filled here, looked up as the template is rendered

    def visit_Const(self, node: nodes.Const) -> nodes.Expr:  # noqa: N802 - Jinja's own protocol
        if not isinstance(node.value, str):
            return node
        self._literals.append(MadeText(node.value, node.value))
        at = nodes.Const(len(self._literals) - 1, lineno=node.lineno)
        literals = nodes.EnvironmentAttribute("literals", lineno=node.lineno)
        return nodes.Getitem(literals, at, "load", lineno=node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802 - the same
        self.generic_visit(node)
        node.filter = _of_written(node.filter, node.lineno)
        return node

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> nodes.Node:  # noqa: N802 - the same
        self.generic_visit(node)
        node.filter = _filter(_of_written(node.filter, node.lineno), PRINTED, node.lineno)
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802 - the same
        """What it gives goes out without being printed, so it is called by what prints it."""
        self.generic_visit(node)
        node.call.args.insert(0, node.call.node)
        node.call.node = nodes.EnvironmentAttribute("called", lineno=node.lineno)
        return node


def _of_written(chain: nodes.Filter | None, line: int) -> nodes.Filter:
    """Filters of a block, the first of them over what it wrote."""
    first = _filter(None, WRITTEN, line)
    if chain is None:
        return first
    inner = chain
    while isinstance(inner.node, nodes.Filter):
        inner = inner.node
    inner.node = first
    return chain


def _filter(inner: nodes.Expr | None, name: str, line: int) -> nodes.Filter:
    return nodes.Filter(inner, name, [], [], None, None, lineno=line)


def refuse_borders(tree: nodes.Template) -> None:
    """A template has none of its own.

    Raises:
        jinja2.TemplateSyntaxError: It has.
    """
    for node in tree.find_all((nodes.Const, nodes.TemplateData)):
        text = str(node.as_const())
        if _OPEN in text or _CLOSE in text:
            message = "the noncharacter U+FDD2 or U+FDD3, expected text"
            raise TemplateSyntaxError(message, node.lineno)
