"""What a keyed sink is told of vectors, and what it tells of itself.

Knows nothing of: any one store.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Metric = Literal["cosine", "l2", "dot"]


class Wanted(msgspec.Struct, frozen=True):
    """How vectors are to lie in a store."""

    metric: Metric
    key: str
    """Name of the column with the row's key."""
    chunk: str
    """Name of the column with the number of a vector among those of its row, from 0."""
    vector: str


class Holds(msgspec.Struct, frozen=True):
    """What a store can hold of texts."""

    text_bytes: int | None = None
    """Of one text in UTF-8; None: no limit that a row meets."""
    row_bytes: int | None = None
    """Of all columns of a row together, as JSON."""
    nul: bool = True
    """Whether a text may have the character NUL in it."""


class Table(msgspec.Struct, frozen=True):
    """What lies at an address."""

    dimensions: int
    is_new: bool = False
