"""What a section of a page is made of.

Knows nothing of: runs, HTML.
"""

from __future__ import annotations

import msgspec

from rowmill.report.page.plots import Plot, Table


class Text(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str
    tone: str = ""
    """`good`, `bad` or `quiet`; empty: as any."""
    kind: str = "text"


class Drawn(msgspec.Struct, frozen=True):
    """A plot."""

    plot: Plot
    kind: str = "plot"


class Piece(msgspec.Struct, frozen=True):
    """A part of a bar."""

    name: str
    width: float
    """Percent."""
    start: float
    told: str
    style: int


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One thing and its parts, as a bar."""

    key: str
    title: str
    description: str
    pieces: list[Piece]
    kind: str = "stack"


class Listed(msgspec.Struct, frozen=True):
    """A table."""

    caption: str
    table: Table
    is_hidden: bool = False
    """Behind a line that opens it."""
    is_prose: bool = False
    """Its cells are sentences of ours, with settings between backticks; else they stand as they are."""
    kind: str = "table"


class Term(msgspec.Struct, frozen=True):
    """A name and what it stands for."""

    name: str
    value: str
    why: str = ""


class Terms(msgspec.Struct, frozen=True):
    """Names and what they stand for."""

    terms: list[Term]
    kind: str = "terms"


class Code(msgspec.Struct, frozen=True):
    """Lines for a shell, or such."""

    label: str
    text: str
    kind: str = "code"


Block = Text | Drawn | Stack | Listed | Terms | Code


class Section(msgspec.Struct, frozen=True):
    """A part of a page."""

    key: str
    title: str
    blocks: list[Block]


def stack(key: str, title: str, parts: list[tuple[str, float, str, int]]) -> Stack:
    """Parts of a whole, in order.

    Args:
        parts: (name, how much, in words, style); what is nothing is left out.
    """
    whole = sum(much for _, much, _, _ in parts) or 1.0
    pieces, start = [], 0.0
    for name, much, told, style in parts:
        if much > 0:
            width = 100 * much / whole
            pieces.append(Piece(name, width, start, told, style))
            start += width
    said = "; ".join(f"{piece.name}: {piece.told}" for piece in pieces)
    return Stack(key=key, title=title, description=said, pieces=pieces)
