"""Points -> one JSON object a row, for stores whose columns are such objects.

Promises: JSON texts are JSON again; dates and times are texts of ISO 8601; a float that JSON cannot hold is null.
Knows nothing of: stores.
Memory: one batch.
"""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from rowmill.write.keyed.points import Points
from rowmill.write.kinds import is_marked


def payloads(points: Points) -> list[dict[str, Any]]:
    """The columns of each row."""
    columns = [
        [_parsed(value) for value in array.to_pylist()]
        if is_marked(field)
        else [_plain(value) for value in array.to_pylist()]
        for field, array in zip(points.columns.schema, points.columns.columns, strict=True)
    ]
    names = points.columns.schema.names
    if not names:
        return [{} for _ in points.keys]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        # Half a surrogate pair, a number that no float holds: the text alone is exact.
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def requests(points: Points, *, most_rows: int, most_bytes: int) -> Iterator[Points]:
    """The same in pieces that a store takes in one request."""
    if not points.keys:
        return
    size = 24 * points.vectors.size + points.columns.get_total_buffer_size()
    step = max(1, min(most_rows, most_bytes * len(points.keys) // max(size, 1)))
    if step >= len(points.keys):
        yield points
        return
    for start in range(0, len(points.keys), step):
        yield points.slice(start, min(start + step, len(points.keys)))


def keys_by_count(points: Points) -> dict[int, list[str]]:
    """Number of vectors -> keys of the rows that have so many: what lies behind them in a store is old."""
    found: dict[int, list[str]] = defaultdict(list)
    for key, number in zip(points.keys, points.counts(), strict=True):
        found[number].append(key)
    return found
