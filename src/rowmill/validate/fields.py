"""A prompt's parts, and texts of some rows -> the order of the parts in which most of the prompts begin alike.

Either one order for all rows, or one for each by the values that many rows have (row_orders.py), where that is better.

Promises: the same parts in another order, or nothing; the best order given twice stays as it is.
Knows nothing of: engines, whether it is asked for.
Memory: a number a row and part, three times.
Source: GGR of "Optimizing LLM Queries in Relational Data Analytics" (arXiv 2403.05821): values weigh by the square of
their length, times the rows that save it. One order for all: part after part, the one of which most characters are shared
by rows that are equal so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from rowmill.rows import Request
from rowmill.validate.parts import Parts, parts_of
from rowmill.validate.row_orders import Value, digest_of, text_places

MOST_VALUES = 256
"""They are part of what a run is; more brought a tenth of a point (benchmarks/RESULTS.md)."""
MIN_GAIN = 0.02
"""Of the prompts: for less, rows are not read in orders of their own."""
Codes = list[int]
Texts = list[list[tuple[str, ...]]]
"""Of each part, of each row."""


class FieldOrder(msgspec.Struct, frozen=True):
    """An order of parts, and what it is worth within a window."""

    prompt: str
    columns: list[str]
    share: float
    """Of the prompts' characters, those that a row has in common with an earlier one."""
    share_before: float
    """The same as the prompt stands."""
    share_of_one: float
    """The same in the best order for all rows."""
    values: list[Value]
    """By which each row has an order of its own; empty: all have that of `prompt`."""


def best_order(prompt: str, requests: Sequence[Request]) -> FieldOrder | None:
    """The order of parts in which rows of one window have most in common; None where nothing can change places.

    Args:
        requests: made of the prompt as it stands.
    """
    parts = parts_of(prompt)
    spans = [request.data_spans for request in requests if request.data_spans]
    if parts is None or len(spans) < 2:
        return None
    texts = _texts(parts, spans)
    codes, lengths = _codes(texts), _lengths(parts, texts)
    total = sum(len(text) for row in spans for text in row)
    if not total:
        return None
    stands = list(range(len(codes)))
    order = _greedy(codes, lengths)
    one, before = (_shared([way] * len(spans), codes, lengths) for way in (order, stands))
    if one <= before:
        order, one = stands, before
    heavy, orders = _by_row(order, codes, lengths)
    own = _shared(orders, codes, lengths)
    is_own = own - one >= MIN_GAIN * total
    return FieldOrder(
        prompt=parts.in_order(order),
        columns=[name for part in order for name in parts.columns[part]],
        share=(own if is_own else one) / total,
        share_before=before / total,
        share_of_one=one / total,
        values=[(at, digest_of(texts[order[at]][row])) for at, row in heavy if is_own],
    )


def _texts(parts: Parts, spans: Sequence[Sequence[str]]) -> Texts:
    """What the columns of each part say; data and what the prompt says take turns, data at odd places."""
    return [
        [tuple(row[2 * place + 1] for place in places) for row in spans]
        for places in text_places(parts)
    ]


def _codes(texts: Texts) -> list[Codes]:
    """Of each part, a number for each row that is equal where the part's texts are."""
    found: list[Codes] = []
    for part in texts:
        known: dict[tuple[str, ...], int] = {}
        found.append([known.setdefault(text, len(known)) for text in part])
    return found


def _lengths(parts: Parts, texts: Texts) -> list[Codes]:
    """Of each part, its characters in each row."""
    return [
        [words + sum(map(len, text)) for text in part]
        for words, part in zip(parts.words, texts, strict=True)
    ]


def _by_row(
    order: Sequence[int], codes: list[Codes], lengths: list[Codes]
) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """The values that weigh most, as (place of the part in `order`, a row that has it), and each row's order by them."""
    found = []
    for at, part in enumerate(order):
        column = codes[part]
        first = {code: row for row, code in reversed(list(enumerate(column)))}
        for code, count in Counter(column).items():
            weight = lengths[part][first[code]] ** 2 * (count - 1)
            if weight:
                found.append((-weight, at, first[code], code))
    heavy = sorted(found)[:MOST_VALUES]
    ranks = {(order[at], code): rank for rank, (_, at, _, code) in enumerate(heavy)}
    orders = [
        sorted(order, key=lambda part: ranks.get((part, row[part]), MOST_VALUES))
        for row in zip(*codes, strict=True)
    ]
    return [(at, row) for _, at, row, _ in heavy], orders


def _greedy(codes: list[Codes], lengths: list[Codes]) -> list[int]:
    """Part after part, the one that shares most with what is chosen before it; of equals the first."""
    chosen: list[int] = []
    so_far: Codes = [0] * len(codes[0])
    left = list(range(len(codes)))
    while left:
        shared = [_kept(so_far, codes[part], lengths[part]) for part in left]
        best = left.pop(shared.index(max(shared)))
        chosen.append(best)
        so_far = _joined(so_far, codes[best])
    return chosen


def _shared(orders: Sequence[Sequence[int]], codes: list[Codes], lengths: list[Codes]) -> int:
    """Characters of parts that an earlier row has as well, behind the same beginning; each row in its order."""
    known: dict[tuple[int, int, int], int] = {}
    shared = 0
    for row, order in enumerate(orders):
        so_far = 0
        for part in order:
            step = (so_far, part, codes[part][row])
            shared += lengths[part][row] if step in known else 0
            so_far = known.setdefault(step, len(known) + 1)
    return shared


def _kept(so_far: Codes, codes: Codes, lengths: Codes) -> int:
    """Characters of a part that an earlier row has behind the same beginning."""
    first = dict(zip(zip(so_far, codes, strict=True), lengths, strict=True))
    return sum(lengths) - sum(first.values())


def _joined(so_far: Codes, codes: Codes) -> Codes:
    known: dict[tuple[int, int], int] = {}
    return [known.setdefault(pair, len(known)) for pair in zip(so_far, codes, strict=True)]
