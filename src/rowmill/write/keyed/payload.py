"""Points -> one JSON object a vector, for stores whose columns are such objects.

Promises: JSON texts are JSON again; dates and times are texts of ISO 8601; a float that JSON cannot hold is null.
Knows nothing of: stores.
Memory: one batch.
"""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec

from rowmill.write.keyed.points import Points
from rowmill.write.keyed.wanted import Wanted
from rowmill.write.kinds import is_marked


def payloads(points: Points, wanted: Wanted) -> list[dict[str, Any]]:
    """The columns of each vector's row, the row's key and the vector's own number."""
    columns = [
        [_parsed(value) for value in array.to_pylist()]
        if is_marked(field)
        else [_plain(value) for value in array.to_pylist()]
        for field, array in zip(points.columns.schema, points.columns.columns, strict=True)
    ]
    names = [*points.columns.schema.names, wanted.key, wanted.chunk]
    rows = zip(*columns, points.keys, points.chunks.tolist(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


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
