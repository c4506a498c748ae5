"""Answered rows -> points: sound vectors under their rows' keys, with the columns that go beside them.

Promises: a row is passed on whole, all its vectors, or refused with a sentence that names it; keys do not repeat
within a task; a text is cut between characters, never within one.
Knows nothing of: stores, runs.
Memory: one batch, and the keys of one task.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.rows import Outcome
from rowmill.write.keyed.kinds import flat_array, flat_field
from rowmill.write.keyed.texts import BadRows, held_texts
from rowmill.write.keyed.vectors import Floats, Vectors, vectors_of
from rowmill.write.keyed.wanted import Holds, Wanted
from rowmill.write.value_text import plain_texts

if TYPE_CHECKING:
    import pyarrow as pa

KEY_BYTES = 2_000
"""A longer key has no place in PostgreSQL's index."""
POINT_IDS = uuid.UUID("6c1f8f0e-9d0b-5c39-9c55-4a2d3b6a7e10")


class Points(msgspec.Struct, frozen=True):
    """V vectors to be put, those of one row side by side and in order.

    Shapes: `keys` V; `chunks` V int64, 0 where a row begins; `vectors` V x D float32; `columns` V rows.
    """

    keys: list[str]
    chunks: npt.NDArray[np.int64]
    vectors: Floats
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def is_chunked(self) -> bool:
        """Whether a row has more than one vector."""
        return bool(self.chunks.any())

    def point_ids(self) -> list[str]:
        """A UUID a vector, made of key and number: for stores that take no text as an id."""
        return [point_id(*one) for one in zip(self.keys, self.chunks.tolist(), strict=True)]

    def keys_by_count(self) -> dict[int, list[str]]:
        """Number of vectors -> keys of the rows that have so many: what a store has beyond them is old."""
        last = dict(zip(self.keys, self.chunks.tolist(), strict=True))
        found: dict[int, list[str]] = {}
        for key, chunk in last.items():
            found.setdefault(chunk + 1, []).append(key)
        return found

    def pieces(self, *, most_rows: int, most_bytes: int) -> Iterator[Points]:
        """The same in pieces for one request each, rows kept together."""
        size = 24 * self.vectors.size + self.columns.get_total_buffer_size()
        step = max(1, min(most_rows, most_bytes * len(self) // max(size, 1)))
        begins = np.flatnonzero(self.chunks == 0)
        start = 0
        while start < len(self):
            stop = len(self)
            if start + step < stop:
                at = int(np.searchsorted(begins, start + step, side="right"))
                stop = int(begins[at - 1])
                if stop <= start:
                    stop = int(begins[at]) if at < len(begins) else len(self)
            yield self._slice(start, stop)
            start = stop

    def _slice(self, start: int, stop: int) -> Points:
        if stop - start == len(self):
            return self
        return Points(
            self.keys[start:stop],
            self.chunks[start:stop],
            self.vectors[start:stop],
            self.columns.slice(start, stop - start),
        )


def point_id(key: str, chunk: int) -> str:
    """The UUID of one vector: the same in each run for the same key."""
    return str(uuid.uuid5(POINT_IDS, f"{chunk}:{key}"))


class Refusal(msgspec.Struct, frozen=True):
    """A row that a store does not get."""

    place: str
    reason: str


class Choice(msgspec.Struct, frozen=True):
    """Which columns go beside the vectors, and what is the key."""

    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    """Columns with the key, the first that holds one counts; where none does, the row's place is it."""
    cuts: bool = False
    """Texts that are too long are cut; else their rows are refused."""
    spans: tuple[str, str] | None = None
    """Names of the columns that tell which part of its text a vector stands for; None where rows have one each."""


class PointMaker:
    """Makes the points of one task."""

    def __init__(
        self, carried: pa.Schema, choice: Choice, wanted: Wanted, holds: Holds, dimensions: int
    ) -> None:
        import pyarrow as pa

        self._choice, self._wanted, self._holds = choice, wanted, holds
        self._dimensions = dimensions
        self._fields = [carried.field(name) for name in choice.columns]
        self._flat = pa.schema([flat_field(field) for field in self._fields])
        spans = [pa.field(name, pa.int64()) for name in choice.spans or ()]
        self.schema = pa.schema([*self._flat, *spans])
        self._place_of_key: dict[str, str] = {}

    def points(
        self, places: Sequence[str], carried: pa.RecordBatch, outcomes: Sequence[Outcome]
    ) -> tuple[Points, list[Refusal]]:
        """The points of further rows of the task, all of them answered, and which rows are none.

        Args:
            places: `FILE:LINE` of each.
            carried: their columns.
        """
        vectors = vectors_of(
            outcomes, self._dimensions, needs_direction=self._wanted.metric == "cosine"
        )
        columns, bad = self._columns(carried)
        bad = {**bad, **vectors.bad}
        keys = self._keys(carried, places)
        for row, (key, place) in enumerate(zip(keys, places, strict=True)):
            reason = "" if row in bad else self._bad_key(key, place)
            if reason:
                bad[row] = reason
        refused = [Refusal(places[row], reason) for row, reason in sorted(bad.items())]
        return self._of_rows(bad, keys, vectors, columns), refused

    def _keys(self, carried: pa.RecordBatch, places: Sequence[str]) -> Sequence[str]:
        keys = places
        for name in reversed(self._choice.keys):
            found = plain_texts(carried.column(name)).to_pylist()
            keys = [key or other for key, other in zip(found, keys, strict=True)]
        return keys

    def _bad_key(self, key: str, place: str) -> str:
        num_bytes = len(key.encode())
        if num_bytes > KEY_BYTES:
            return f"its key has {num_bytes:,} bytes, limit {KEY_BYTES:,}"
        if "\0" in key:
            return "its key holds the character NUL"
        first = self._place_of_key.setdefault(key, place)
        if first != place:
            return f"its key is that of {first} too; set `sink.key` to a column that does not repeat"
        return ""

    def _columns(self, carried: pa.RecordBatch) -> tuple[pa.RecordBatch, BadRows]:
        import pyarrow as pa

        arrays = [flat_array(carried.column(f.name), f) for f in self._fields]
        if not arrays:
            return carried.select([]), {}
        columns = pa.RecordBatch.from_arrays(arrays, schema=self._flat)
        return held_texts(columns, self._holds, cuts=self._choice.cuts)

    def _of_rows(
        self, bad: BadRows, keys: Sequence[str], vectors: Vectors, columns: pa.RecordBatch
    ) -> Points:
        import pyarrow as pa

        rows, chunks, values = vectors.rows, vectors.chunks, vectors.values
        spans = np.array(vectors.spans or [(0, 0)] * len(rows), np.int64).reshape(-1, 2)
        if bad:
            kept = ~np.isin(rows, list(bad))
            rows, chunks, values, spans = rows[kept], chunks[kept], values[kept], spans[kept]
        arrays = columns.columns
        if len(rows) != len(keys) or bad or chunks.any():
            arrays = [array.take(pa.array(rows)) for array in arrays]
        if self._choice.spans:
            # A text in one piece has no parts.
            none = (spans[:, 1] == 0).astype(np.bool_)
            arrays = [*arrays, *(pa.array(spans[:, at], mask=none) for at in (0, 1))]
        names = self.schema.names
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema) if names else columns
        return Points([keys[row] for row in rows.tolist()], chunks, values, batch)
