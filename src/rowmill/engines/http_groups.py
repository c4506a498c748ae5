"""Rows that go to an endpoint in one request: texts to embed, as many as it takes at once.

Promises: a request that is refused is asked again in halves, so that one bad text takes no other with it and is
found in few requests; no body is sent again unchanged that was refused.
Knows nothing of: connections, waiting.
Memory: the rows of the request.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.engines.http_answer import Answer, Asked
from rowmill.engines.http_lanes import Lane
from rowmill.rows import Piece, Sampling


class Row(msgspec.Struct):
    """A row that is asked."""

    key: int
    prompt_tokens: int
    max_tokens: int
    sampling: Sampling
    wire: bytes = b""
    pieces: list[Piece] = []

    @property
    def num_texts(self) -> int:
        """So many vectors it gets."""
        return len(self.pieces) or 1


class Group(msgspec.Struct):
    """The rows of one request: one, but where they are texts to embed."""

    rows: list[Row]
    asked: Asked
    attempts: int = 0
    splits: int = 0
    """Attempts before it was halved: they say nothing of what is left."""
    began: float = -1.0
    failed_at: Lane | None = None

    @property
    def key(self) -> int:
        """Of its first row: what it is known by."""
        return self.rows[0].key

    @property
    def sampling(self) -> Sampling:
        """One for all of its rows."""
        return self.rows[0].sampling

    def halves(self) -> tuple[list[Row], list[Row]]:
        """Its rows in two parts."""
        middle = len(self.rows) // 2
        return self.rows[:middle], self.rows[middle:]


def joined(rows: Sequence[Row]) -> bytes:
    """What stands in a body for the texts of several rows."""
    if len(rows) == 1:
        return rows[0].wire
    return b"[%b]" % b",".join([row.wire[1:-1] if row.pieces else row.wire for row in rows])


def shared_out(rows: Sequence[Row], answer: Answer) -> list[tuple[list[bytes], int]]:
    """Each row's vectors, and its share of the tokens that the request took, by how much text it has."""
    sizes = [len(row.wire) for row in rows]
    whole, before, at = sum(sizes) or 1, 0, 0
    shares = []
    for row, size in zip(rows, sizes, strict=True):
        tokens = answer.prompt_tokens * (before + size) // whole
        tokens -= answer.prompt_tokens * before // whole
        shares.append((answer.vectors[at : at + row.num_texts], tokens))
        before, at = before + size, at + row.num_texts
    return shares
