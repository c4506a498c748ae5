"""A way to save work, with its verdict."""

from __future__ import annotations

import msgspec


class Lever(msgspec.Struct, frozen=True):
    """One way to save work: whether its predicate holds here, and what it is expected to bring."""

    name: str
    is_used: bool
    reason: str
    saved_rows: int = 0
    saved_tokens: int = 0
    saved_s: float = 0.0
    """Where a forecast was made with it and without."""
