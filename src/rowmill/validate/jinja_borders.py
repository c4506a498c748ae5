"""A `prompt_jinja` as it is rendered -> its own words and a row's data, told apart by borders around what is printed.

Promises: data is never taken for the template's own words; what a template makes of its own output (a `set` block, what
a macro gives) is the text alone, without borders, as long as it is looked at and not printed.
Knows nothing of: how values become text (jinja_texts.py).
"""

from __future__ import annotations

import re
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

_OPEN, _CLOSE = "\ufdd2", "\ufdd3"  # noncharacters: no text for interchange holds them
_BORDER = re.compile(f"({_OPEN}|{_CLOSE})")
_IN_JSON = re.compile(rb"\xef\xb7[\x92\x93]|\\ufdd[23]", re.IGNORECASE)
_BARE, _WHOLE = "without borders", "within whole borders"
"""Names of filters that no template can spell."""


def within(text: Any) -> str:
    """A text in borders."""
    return f"{_OPEN}{text}{_CLOSE}"


def bare(value: Any) -> Any:
    """What a template made, without borders."""
    if isinstance(value, str) and (_OPEN in value or _CLOSE in value):
        return _BORDER.sub("", value)
    return value


def whole(value: Any) -> Any:
    """What a filter made of words and data in turn; data as a whole where it tore borders apart."""
    if not isinstance(value, str):
        return value
    depth = 0
    for border in _BORDER.findall(value):
        depth += 1 if border == _OPEN else -1
        if depth < 0:
            break
    return within(bare(value)) if depth else value


def holds_border(raw: bytes) -> bool:
    """Whether JSON text could pass itself off as the template's own words."""
    return _IN_JSON.search(raw) is not None


def split(text: str) -> list[str]:
    """Words and data in turn, beginning and ending with words."""
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


FILTERS = {_BARE: bare, _WHOLE: whole}


class Captures(NodeTransformer):
    """Takes borders out of what `set` blocks hold, before their own filters see it; looks at what `filter` blocks leave."""

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802 - Jinja's own protocol
        self.generic_visit(node)
        first = node.filter
        while first is not None and isinstance(first.node, nodes.Filter):
            first = first.node
        if first is None:
            node.filter = _filter(None, _BARE, node.lineno)
        else:
            first.node = _filter(None, _BARE, node.lineno)
        return node

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> nodes.Node:  # noqa: N802 - Jinja's own protocol
        self.generic_visit(node)
        node.filter = _filter(node.filter, _WHOLE, node.lineno)
        return node


def _filter(inner: nodes.Expr | None, name: str, line: int) -> nodes.Filter:
    return nodes.Filter(inner, name, [], [], None, None, lineno=line)
