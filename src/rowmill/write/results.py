"""Source line + Outcome -> result line: the untouched columns with rowmill's own behind them.

Promises: what the source line held is carried byte for byte; output is strict JSON in UTF-8, one object a line.
Knows nothing of: files, order.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rowmill.rows import Outcome

CARRIED_FIELDS = tuple(name for name in Outcome.__struct_fields__ if name != "key")
ROW_COLUMN = "row"
"""`FILE:LINE` of the source line."""


class ResultLines:
    """Makes result lines for one output prefix."""

    def __init__(self, prefix: str) -> None:
        types = {field.name: field.type for field in msgspec.structs.fields(Outcome)}
        columns = [(ROW_COLUMN, str), *((name, types[name]) for name in CARRIED_FIELDS)]
        self._struct: Any = msgspec.defstruct(
            "Result", columns, rename={name: prefix + name for name, _ in columns}, gc=False
        )
        self._encoder = msgspec.json.Encoder()
        self.columns = [prefix + name for name, _ in columns]

    def line(self, source: bytes, place: str, outcome: Outcome) -> bytes:
        """One line of the results, newline and all.

        Args:
            source: the source line without white space around it.
            place: `FILE:LINE` of it.
        """
        o = outcome
        own = self._encoder.encode(
            self._struct(
                place,
                o.status,
                o.text,
                o.finish_reason,
                o.choices,
                o.prompt_tokens,
                o.cached_tokens,
                o.output_tokens,
                o.max_tokens,
                o.attempts,
                o.seconds,
                o.copied_from,
                o.error_kind,
                o.error,
            )
        )
        if o.error_kind == "unreadable":
            return _with_salvaged_id(source, own)
        head = source[:-1].rstrip()
        if len(head) == 1:
            return own + b"\n"
        return b"%b,%b\n" % (head, own[1:])


def _with_salvaged_id(source: bytes, own: bytes) -> bytes:
    """A line that is no strict JSON object carries nothing but its id, where a lenient reader finds one."""
    try:
        row = json.loads(source)
    except (ValueError, RecursionError):
        return own + b"\n"
    if not isinstance(row, dict):
        return own + b"\n"
    name = "custom_id" if "custom_id" in row else "id"
    id_ = row.get(name)
    if not isinstance(id_, str | int) or isinstance(id_, bool):
        return own + b"\n"
    try:
        carried = msgspec.json.encode({name: id_})
    except (UnicodeEncodeError, OverflowError):
        return own + b"\n"
    return b"%b,%b\n" % (carried[:-1], own[1:])
