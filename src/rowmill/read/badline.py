"""A line or record that cannot be a row whatever it says."""

from __future__ import annotations

import msgspec


class BadLine(msgspec.Struct, frozen=True, gc=False):
    """A line that cannot be a row whatever it says; `reason` ends a sentence about it."""

    key: int
    reason: str
