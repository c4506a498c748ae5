"""Vectors of rows as outcomes hold them -> one matrix, and which row each is of.

Promises: a vector that is short, long, not finite or without a direction is told, never passed on.
Knows nothing of: stores, columns beside it.
Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.rows import Chunk, Outcome

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
FLOAT_BYTES = 4


class Vectors(msgspec.Struct, frozen=True):
    """V vectors of R rows, those of one row side by side.

    Shapes: `rows` (of each vector), `chunks` V int64; `values` V x D float32; `bad` by row.
    """

    rows: Numbers
    chunks: Numbers
    spans: list[tuple[int, int]]
    """First character of its text that a vector stands for, and one past the last; empty where rows have one each."""
    values: Floats
    bad: dict[int, str]
    """Row -> why no store may get it. Its vectors are not among the others."""


def vectors_of(
    outcomes: Sequence[Outcome], dimensions: int, *, needs_direction: bool
) -> Vectors:
    """The sound vectors of rows that were answered."""
    bad: dict[int, str] = {}
    found: list[tuple[int, int, tuple[int, int], bytes]] = []
    for row, outcome in enumerate(outcomes):
        parts = _parts(outcome)
        wrong = next((p for _, p in parts if len(p) != dimensions * FLOAT_BYTES), None)
        if not parts:
            bad[row] = "it has no vector"
        elif wrong is not None:
            length = len(wrong) // FLOAT_BYTES
            bad[row] = f"its vector has {length} dimensions, expected {dimensions}"
        else:
            found += [(row, at, span, part) for at, (span, part) in enumerate(parts)]
    values = np.frombuffer(b"".join(part for *_, part in found), "<f4")
    values = values.astype(np.float32, copy=False).reshape(len(found), dimensions)
    rows = np.array([row for row, *_ in found], np.int64)
    for row, reason in _unsound(values, rows, needs_direction=needs_direction):
        bad.setdefault(row, reason)
    kept = ~np.isin(rows, list(bad)) if bad else np.ones(len(rows), np.bool_)
    has_spans = any(outcome.chunks for outcome in outcomes)
    return Vectors(
        rows[kept],
        np.array([at for _, at, _, _ in found], np.int64)[kept],
        [found[i][2] for i in np.flatnonzero(kept).tolist()] if has_spans else [],
        values if not bad else values[kept],
        bad,
    )


def _parts(outcome: Outcome) -> list[tuple[tuple[int, int], bytes]]:
    """Span and bytes of each vector of a row."""
    if outcome.embedding:
        return [((0, 0), outcome.embedding)]
    chunks: Sequence[Chunk] = outcome.chunks or ()
    return [((chunk.start, chunk.stop), chunk.embedding) for chunk in chunks]


def _unsound(
    values: Floats, rows: Numbers, *, needs_direction: bool
) -> Iterator[tuple[int, str]]:
    for at in np.flatnonzero(~np.isfinite(values).all(axis=1)).tolist():
        yield int(rows[at]), "its vector holds NaN or infinity"
    if needs_direction:
        for at in np.flatnonzero(~values.any(axis=1)).tolist():
            yield int(rows[at]), "its vector is all zeros: cosine has no angle to it"
