"""Outcomes with vectors -> the same, vectors cut and brought to length as the job asks; bad ones are row errors.

Promises: a vector that leaves here is finite, not zero, and as long as all others of the run; adapters need not look.
Knows nothing of: where vectors come from, channels.
Memory: the vectors of one call, twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill import errors
from rowmill.kinds_config import EmbedConfig
from rowmill.rows import Chunk, Ids, Limits, Outcome, Pair, Piece

Matrix = npt.NDArray[np.float32]
_BYTES = 4


class BadVector(errors.RowError):
    """A vector that no index could take; the same input would give it again."""

    kind = "bad_vector"


class Vectors:
    """Looks at the vectors of one engine."""

    def __init__(self, config: EmbedConfig, limits: Limits) -> None:
        """What is asked of vectors.

        Raises:
            ConfigError: The model's vectors are shorter than the job wants them.
        """
        self._whole = limits.dimensions
        self._kept = config.dimensions
        # Where nothing is asked, the adapter has done as the model's files say; but a part has another length.
        self._normalise = bool(config.normalise) or (
            config.dimensions is not None and config.normalise is not False
        )
        if self._kept and 0 < self._whole < self._kept:
            reason = (
                f"`embed.dimensions` is {self._kept}, the model's vectors have {self._whole};"
                " ask for so many at most"
            )
            raise errors.ConfigError(reason=reason)

    @property
    def dimensions(self) -> int:
        """Numbers in each vector that leaves here; 0 while that is not known."""
        return self._kept or self._whole

    def judged(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The same outcomes; a row with a bad vector has failed."""
        vectors = [
            part
            for outcome in outcomes
            if outcome.status == "ok"
            for part in _vectors_of(outcome)
        ]
        finished = self._finished(vectors)
        at = 0
        judged = []
        for outcome in outcomes:
            if outcome.status != "ok":
                judged.append(outcome)
                continue
            number = len(_vectors_of(outcome))
            judged.append(_with(outcome, finished[at : at + number]))
            at += number
        return judged

    def _finished(self, vectors: Sequence[bytes]) -> list[bytes | BadVector]:
        """Each vector as it is kept, or what is wrong with it."""
        self._whole = self._whole or length_of(vectors)
        right = [at for at, one in enumerate(vectors) if len(one) == self._whole * _BYTES]
        finished: list[bytes | BadVector] = [
            self._of_wrong_length(one) if len(one) != self._whole * _BYTES else one
            for one in vectors
        ]
        if not right:
            return finished
        packed = b"".join([vectors[at] for at in right])
        matrix = np.frombuffer(packed, "<f4").reshape(len(right), self._whole)
        reasons = _reasons(matrix)
        kept = self._shaped(matrix)
        for row, at in enumerate(right):
            reason = reasons[row]
            finished[at] = BadVector(reason=reason) if reason else kept[row].tobytes()
        return finished

    def _of_wrong_length(self, vector: bytes) -> BadVector:
        reason = (
            f"its vector has {len(vector) // _BYTES} numbers, all others have {self._whole}"
        )
        return BadVector(reason=reason)

    def _shaped(self, matrix: Matrix) -> Matrix:
        kept = matrix[:, : self._kept] if self._kept else matrix
        if not self._normalise:
            return np.ascontiguousarray(kept, "<f4")
        with np.errstate(all="ignore"):
            lengths = np.linalg.norm(kept.astype(np.float64), axis=1, keepdims=True)
            return np.ascontiguousarray(kept / lengths, "<f4")


def parts_of(ids: Ids, pieces: Sequence[Piece], pairs: Sequence[Pair]) -> list[Ids]:
    """The texts of a row that go through a model one by one: itself, its pieces, or its pairs."""
    parts = pieces or pairs
    if not parts:
        return [ids]
    return np.split(ids, np.cumsum([part.tokens for part in parts])[:-1])


def answered_with(
    vectors: Sequence[bytes], pieces: Sequence[Piece] = (), pairs: Sequence[Pair] = ()
) -> dict[str, Any]:
    """The fields of an outcome that its vectors fill, one for each part of the row where there are several."""
    if pairs:
        return {"embedding": None, "chunks": [Chunk(0, 0, vector) for vector in vectors]}
    if not pieces:
        return {"embedding": vectors[0], "chunks": []}
    chunks = [
        Chunk(piece.start, piece.stop, vector)
        for piece, vector in zip(pieces, vectors, strict=True)
    ]
    return {"embedding": None, "chunks": chunks}


def length_of(vectors: Sequence[bytes]) -> int:
    """Numbers in the first vector that is good; 0 where none is."""
    for one in vectors:
        if (
            one
            and len(one) % _BYTES == 0
            and not any(_reasons(np.frombuffer(one, "<f4").reshape(1, -1)))
        ):
            return len(one) // _BYTES
    return 0


def _reasons(matrix: Matrix) -> list[str]:
    """What is wrong with each vector; empty where nothing is."""
    finite = np.isfinite(matrix)
    bad = ~finite.all(axis=1)
    zero = ~matrix.any(axis=1)
    reasons = [""] * len(matrix)
    for row in np.flatnonzero(zero).tolist():
        reasons[row] = (
            f"its vector is all zeros, {matrix.shape[1]} of them: it has no direction"
        )
    for row in np.flatnonzero(bad).tolist():
        number = int((~finite[row]).sum())
        reasons[row] = f"{number} of the {matrix.shape[1]} numbers of its vector are not finite"
    return reasons


def _vectors_of(outcome: Outcome) -> list[bytes]:
    if outcome.chunks:
        return [chunk.embedding for chunk in outcome.chunks]
    return [outcome.embedding or b""]


def _with(outcome: Outcome, vectors: list[bytes | BadVector]) -> Outcome:
    """The outcome with these vectors in place of its own."""
    kept: list[bytes] = []
    for one in vectors:
        if isinstance(one, BadVector):
            return msgspec.structs.replace(
                outcome,
                status="error",
                embedding=None,
                chunks=[],
                error_kind=one.kind,
                error=str(one),
            )
        kept.append(one)
    if not outcome.chunks:
        return msgspec.structs.replace(outcome, embedding=kept[0])
    chunks = [
        Chunk(chunk.start, chunk.stop, vector)
        for chunk, vector in zip(outcome.chunks, kept, strict=True)
    ]
    return msgspec.structs.replace(outcome, embedding=None, chunks=chunks)
