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
    fits: bool = False
    """It is left alone because what is shared seems to fit into the KV cache in any order."""
    saved_s: float = 0.0
    """Where a forecast was made with it and without."""
