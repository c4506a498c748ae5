"""A row's texts between the words of a prompt -> the same, its parts in an order of the row's own.

Values that many rows have, and that are long, come first, wherever they stand in the prompt: rows that have one in
common begin alike, be it in one column or in another. Rows without any have the prompt as it is given.

Promises: the same parts; a row's order depends on its texts and the values alone.
Knows nothing of: how values are chosen (fields.py), engines.
Memory: a layout for each order that was met, `MOST_LAYOUTS` at most.
Source: GGR of "Optimizing LLM Queries in Relational Data Analytics" (arXiv 2403.05821) takes the value that saves most,
sets its rows apart, and looks at both parts anew. Here all values have their ranks at once, so that rows that are read
later need no more than a look at each; benchmarks/RESULTS.md has what that gives up.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import xxhash

from rowmill.validate.columns import compile_columns
from rowmill.validate.parts import Parts, parts_of

MOST_LAYOUTS = 4096

Value = tuple[int, str]
"""(part of the prompt, digest of what its columns say)"""


class _Layout(msgspec.Struct, frozen=True):
    """A prompt in one order."""

    literals: tuple[str, ...]
    places: list[int]
    """Of each text, where it stands in the prompt as it is given."""


class RowOrders:
    """Callable: what the prompt says and what a row says in turn -> the same in the row's order."""

    def __init__(self, prompt: str, values: Sequence[Value]) -> None:
        """Orders for a prompt.

        Args:
            values: the first one comes first.
        """
        parts = parts_of(prompt)
        assert parts is not None, "a prompt whose parts cannot change places has one order"
        self._parts = parts
        self._ranks: list[dict[str, int]] = [{} for _ in parts.columns]
        for rank, (part, digest) in enumerate(values):
            self._ranks[part][digest] = rank
        self._last = len(values)
        self._places = text_places(parts)
        self._layouts: dict[tuple[int, ...], _Layout] = {}

    def __call__(self, spans: Sequence[str]) -> list[str]:
        layout = self._layout_of(self._order(spans))
        found = [""] * len(spans)
        found[::2] = layout.literals
        found[1::2] = [spans[2 * place + 1] for place in layout.places]
        return found

    def _order(self, spans: Sequence[str]) -> tuple[int, ...]:
        last = self._last
        ranks = [
            known.get(digest_of([spans[2 * place + 1] for place in places]), last)
            for known, places in zip(self._ranks, self._places, strict=True)
        ]
        return tuple(sorted(range(len(ranks)), key=ranks.__getitem__))

    def _layout_of(self, order: tuple[int, ...]) -> _Layout:
        found = self._layouts.get(order)
        if found is None:
            template = compile_columns(self._parts.in_order(order))
            moved = [place for part in order for place in self._places[part]]
            first = self._parts.skipped
            behind = range(first + len(moved), len(template.columns))
            found = _Layout(template.literals, [*range(first), *moved, *behind])
            if len(self._layouts) < MOST_LAYOUTS:
                self._layouts[order] = found
        return found


def text_places(parts: Parts) -> list[range]:
    """Of each part, where its texts stand among those of the prompt."""
    found, at = [], parts.skipped
    for columns in parts.columns:
        found.append(range(at, at + len(columns)))
        at += len(columns)
    return found


def digest_of(texts: Sequence[str]) -> str:
    """What a value of a part is known by; its text is nobody's business in a record of the run."""
    return xxhash.xxh3_64_hexdigest("\0".join(texts).encode("utf-8", "surrogatepass"))


def written(values: Sequence[Value]) -> str:
    """Values as they stand in the identity of a run."""
    return " ".join(f"{part}:{digest}" for part, digest in values)


def read(text: str) -> list[Value]:
    """Values from the identity of a run."""
    pairs = (word.split(":") for word in text.split())
    return [(int(part), digest) for part, digest in pairs]
