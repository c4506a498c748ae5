"""Result batches -> points: sound vectors under their rows' keys, with the columns that go beside them.

Promises: a row is passed on whole, all its vectors, or refused with a sentence that names it; keys do not repeat
within a task; a text is cut between characters, never within one.
Knows nothing of: stores, runs.
Memory: one batch, and the keys of one task.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.write.keyed.kinds import flat_array, flat_field
from rowmill.write.keyed.protocol import Holds, Wanted
from rowmill.write.keyed.vectors import Floats, Vectors, bad_vectors, matrix, vectors_of
from rowmill.write.value_text import plain_texts

if TYPE_CHECKING:
    import pyarrow as pa

KEY_BYTES = 2_000
"""A longer key has no place in PostgreSQL's index."""
POINT_IDS = uuid.UUID("6c1f8f0e-9d0b-5c39-9c55-4a2d3b6a7e10")


class Points(msgspec.Struct, frozen=True):
    """Vectors to be put.

    Shapes: V vectors of R rows: `keys` and `places` of rows R; `rows` (index into those), `chunks` V int64;
    `vectors` V x D float32; `columns` R rows.
    """

    keys: list[str]
    rows: npt.NDArray[np.int64]
    chunks: npt.NDArray[np.int64]
    vectors: Floats
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_chunked(self) -> bool:
        """Whether a row has more than one vector."""
        return bool(self.chunks.any())

    def point_ids(self) -> list[str]:
        """A UUID a vector, made of key and chunk: for stores that take no text as an id."""
        return [
            point_id(self.keys[row], chunk)
            for row, chunk in zip(self.rows.tolist(), self.chunks.tolist(), strict=True)
        ]

    def counts(self) -> list[int]:
        """How many vectors each row has."""
        return np.bincount(self.rows, minlength=len(self.keys)).tolist()

    def slice(self, start: int, stop: int) -> Points:
        """The rows `start` to `stop`."""
        inside = (self.rows >= start) & (self.rows < stop)
        return Points(
            self.keys[start:stop],
            self.rows[inside] - start,
            self.chunks[inside],
            self.vectors[inside],
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
    """Which columns of a result batch are taken, and how."""

    place: str
    """Column with `FILE:LINE`."""
    vector: str
    """Column with the vector or the vectors."""
    key: str
    """Column with the key; empty: the place is it."""
    columns: tuple[str, ...]
    """Columns that go along."""
    cuts: bool = False
    """Texts that are too long are cut; else their rows are refused."""


class PointMaker:
    """Makes the points of one task."""

    def __init__(
        self, schema: pa.Schema, choice: Choice, wanted: Wanted, holds: Holds, dimensions: int
    ) -> None:
        import pyarrow as pa

        self._choice, self._wanted, self._holds = choice, wanted, holds
        self._dimensions = dimensions
        self._fields = [schema.field(name) for name in choice.columns]
        self.schema = pa.schema([flat_field(field) for field in self._fields])
        self._place_of_key: dict[str, str] = {}

    def points(self, batch: pa.RecordBatch) -> tuple[Points, list[Refusal]]:
        """The points of further rows of the task, and which rows are none."""
        places: list[str] = batch.column(self._choice.place).to_pylist()
        keys = self._keys(batch, places)
        vectors = vectors_of(batch.column(self._choice.vector))
        columns, bad = self._columns(batch)
        needs_direction = self._wanted.metric == "cosine"
        bad += bad_vectors(vectors, self._dimensions, needs_direction=needs_direction)
        why = dict(reversed(bad))
        has_any = set(vectors.rows.tolist())
        for row, (key, place) in enumerate(zip(keys, places, strict=True)):
            if row in why:
                continue
            reason = self._bad_key(key, place) if row in has_any else "it has no vector"
            if reason:
                why[row] = reason
        kept = [row for row in range(len(keys)) if row not in why]
        refused = [Refusal(places[row], reason) for row, reason in sorted(why.items())]
        return self._of_rows(kept, keys, vectors, columns), refused

    def _keys(self, batch: pa.RecordBatch, places: Sequence[str]) -> Sequence[str]:
        if not self._choice.key:
            return places
        found = plain_texts(batch.column(self._choice.key)).to_pylist()
        return [key or place for key, place in zip(found, places, strict=True)]

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

    def _columns(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        import pyarrow as pa

        arrays, bad = [], list[tuple[int, str]]()
        for field, flat in zip(self._fields, self.schema, strict=True):
            array = flat_array(batch.column(field.name), field)
            if pa.types.is_string(flat.type):
                array, found = self._texts(array, field.name, is_plain=flat.metadata is None)
                bad += found
            arrays.append(array)
        columns = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return columns, [*bad, *self._long_rows(columns)]

    def _texts(
        self, array: pa.Array, name: str, *, is_plain: bool
    ) -> tuple[pa.Array, list[tuple[int, str]]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        bad: list[tuple[int, str]] = []
        if not self._holds.nul:
            held = pc.fill_null(pc.match_substring(array, "\0"), False)
            reason = f"`{name}` holds the character NUL, which the store has no place for"
            bad += [(row, reason) for row in np.flatnonzero(held.to_numpy(False)).tolist()]
        limit = self._holds.text_bytes
        if limit is None:
            return array, bad
        sizes = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
        long = np.flatnonzero(sizes > limit).tolist()
        if long and self._choice.cuts and is_plain:
            texts = array.to_pylist()
            for row in long:
                texts[row] = texts[row].encode()[:limit].decode(errors="ignore")
            return pa.array(texts, pa.string()), bad
        way_on = "; `sink.long_text` may cut it" if is_plain else ""
        for row in long:
            reason = f"`{name}` has {int(sizes[row]):,} bytes in UTF-8, limit {limit:,}{way_on}"
            bad.append((row, reason))
        return array, bad

    def _long_rows(self, columns: pa.RecordBatch) -> Iterable[tuple[int, str]]:
        limit = self._holds.row_bytes
        if limit is None or columns.get_total_buffer_size() < limit:
            return
        for row, values in enumerate(columns.to_pylist()):
            size = len(msgspec.json.encode(values))
            if size > limit:
                yield row, f"its columns have {size:,} bytes, limit {limit:,}; name fewer in `sink.columns`"

    def _of_rows(
        self, kept: list[int], keys: Sequence[str], vectors: Vectors, columns: pa.RecordBatch
    ) -> Points:
        import pyarrow as pa

        new_row = np.full(len(keys), -1, np.int64)
        new_row[kept] = np.arange(len(kept))
        values, places = matrix(vectors, self._dimensions)
        rows = new_row[vectors.rows[places]]
        is_kept = rows >= 0
        if len(kept) < len(keys):
            columns = columns.take(pa.array(kept, pa.int64()))
            values = values[is_kept]
        return Points(
            [keys[row] for row in kept],
            rows[is_kept],
            vectors.chunks[places][is_kept],
            np.ascontiguousarray(values),
            columns,
        )
