"""A column of vectors -> one matrix, and which row each vector is of.

Promises: a vector that is short, long, empty, not finite or without a direction is told, never passed on.
Knows nothing of: stores, columns beside it.
Memory: one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


class Vectors(msgspec.Struct, frozen=True):
    """The vectors of R rows, V in all.

    Shapes: `rows`, `chunks`, `lengths` V int64; `values` all numbers end to end, float32.
    """

    rows: Numbers
    chunks: Numbers
    lengths: Numbers
    values: Floats


def vectors_of(column: pa.Array) -> Vectors:
    """Take a column apart: of vectors, or of lists of vectors where rows have many."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = np.arange(len(column), dtype=np.int64)
    chunks = np.zeros(len(column), np.int64)
    if _is_list(column.type) and _is_list(column.type.value_type):
        counts = _lengths(column)
        rows = np.repeat(rows, counts)
        starts = np.cumsum(counts) - counts
        chunks = np.arange(counts.sum(), dtype=np.int64) - np.repeat(starts, counts)
        column = column.flatten()
    lengths = _lengths(column)
    numbers = pc.fill_null(column.flatten().cast(pa.float64()), float("nan"))
    with np.errstate(over="ignore"):
        values = numbers.to_numpy(zero_copy_only=False).astype(np.float32)
    return Vectors(rows, chunks, lengths, values)


def _is_list(type_: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def _lengths(column: pa.Array) -> Numbers:
    """How many there are in each list; 0 in one that is null."""
    import pyarrow.compute as pc

    found: Numbers = (
        pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ).astype(np.int64)
    return found


def most_frequent_length(vectors: Vectors) -> int:
    """The dimensions that most vectors have; 0 where there is none."""
    counts = Counter(vectors.lengths[vectors.lengths > 0].tolist())
    return counts.most_common(1)[0][0] if counts else 0


def matrix(vectors: Vectors, dimensions: int) -> tuple[Floats, Numbers]:
    """The vectors of the right length as a V x D matrix, and their places among all."""
    places = np.flatnonzero(vectors.lengths == dimensions)
    starts = np.cumsum(vectors.lengths) - vectors.lengths
    if len(places) == len(vectors.lengths):
        return vectors.values.reshape(-1, dimensions), places
    at = starts[places][:, None] + np.arange(dimensions)[None, :]
    return vectors.values[at], places


def bad_vectors(
    vectors: Vectors, dimensions: int, *, needs_direction: bool
) -> Iterator[tuple[int, str]]:
    """(row, what is wrong) of each row that has a vector which no store may get."""
    for place in np.flatnonzero(vectors.lengths != dimensions).tolist():
        length = int(vectors.lengths[place])
        found = f"{length} dimensions, expected {dimensions}" if length else "no numbers"
        yield int(vectors.rows[place]), f"its vector has {found}"
    found_matrix, places = matrix(vectors, dimensions)
    for at in np.flatnonzero(~np.isfinite(found_matrix).all(axis=1)).tolist():
        yield int(vectors.rows[places[at]]), "its vector holds NaN or infinity"
    if needs_direction:
        for at in np.flatnonzero(~found_matrix.any(axis=1)).tolist():
            yield int(vectors.rows[places[at]]), "its vector is zero: cosine has no angle to it"
