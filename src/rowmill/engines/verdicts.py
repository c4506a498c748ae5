"""Numbers of a model -> labels with probabilities, scores, rankings.

Adapters hand over what the model gives, as a vector: for `classify` a number for each class (or, for a set of labels,
the log-probability of each as an answer), for `score` and `rerank` one number a pair.

Promises: probabilities of one label or another add up to 1; a ranking holds each place once, of equal scores the first
in the row first; numbers that are not finite are no verdict: their row has failed.
Knows nothing of: how numbers are computed.
Memory: the outcomes given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.rows import Limits, Outcome

Numbers = npt.NDArray[np.float64]


class BadScore(errors.RowError):
    """Numbers of which nothing follows; the same input would give them again."""

    kind = "bad_score"


class Verdicts:
    """Looks at the numbers of one engine."""

    def __init__(self, engine: EngineConfig, limits: Limits) -> None:
        """What is asked of them."""
        self._labels: tuple[str, ...] = ()
        self._ranks = engine.ranks
        self._top_n = engine.score.top_n if engine.score else None
        if engine.classify is not None:
            self._labels = engine.classify.names or limits.labels
            self._activation = "softmax" if engine.classify.names else limits.activation
            if engine.classify.activation != "auto":
                self._activation = engine.classify.activation
        else:
            self._activation = limits.activation or "sigmoid"
            if engine.score is not None and engine.score.activation != "auto":
                self._activation = engine.score.activation

    @property
    def dimensions(self) -> int:
        """What leaves here is no vector."""
        return 0

    def judged(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The same outcomes, with a verdict in place of the numbers."""
        return list(map(self._judged, outcomes))

    def _judged(self, outcome: Outcome) -> Outcome:
        bare = msgspec.structs.replace(outcome, embedding=UNSET, chunks=UNSET)
        if outcome.status != "ok":
            return bare
        try:
            return msgspec.structs.replace(bare, **self._verdict(outcome))
        except BadScore as error:
            return msgspec.structs.replace(
                bare, status="error", error_kind=error.kind, error=str(error)
            )

    def _verdict(self, outcome: Outcome) -> dict[str, Any]:
        if self._labels:
            return self._label(_numbers(outcome.embedding or b""))
        chunks = outcome.chunks or []
        numbers = _numbers(b"".join(chunk.embedding for chunk in chunks))
        if len(numbers) != len(chunks) or not chunks:
            reason = f"it has {len(numbers)} numbers, expected one for each of its {len(chunks)} pairs"
            raise BadScore(reason=reason)
        scores = self._activated(numbers)
        if not self._ranks:
            return {"score": float(scores[0])}
        order = np.argsort(-scores, kind="stable")[: self._top_n]
        return {"scores": scores.tolist(), "ranking": order.tolist()}

    def _label(self, numbers: Numbers) -> dict[str, Any]:
        if len(numbers) == 1 and len(self._labels) == 2:
            # One number for two classes is that of the second.
            numbers = np.array([0.0, numbers[0]])
        if len(numbers) != len(self._labels):
            reason = f"it has {len(numbers)} numbers, expected one for each of {len(self._labels)} labels"
            raise BadScore(reason=reason)
        found = self._activated(numbers)
        best = int(found.argmax())
        return {
            "label": self._labels[best],
            "probability": float(found[best]),
            "probabilities": dict(zip(self._labels, found.tolist(), strict=True)),
        }

    def _activated(self, numbers: Numbers) -> Numbers:
        if not np.isfinite(numbers).all():
            count = int((~np.isfinite(numbers)).sum())
            reason = f"{count} of its {len(numbers)} numbers are not finite"
            raise BadScore(reason=reason)
        if self._activation == "softmax":
            return softmax(numbers)
        return sigmoid(numbers) if self._activation == "sigmoid" else numbers


def softmax(numbers: Numbers) -> Numbers:
    """Shares that add up to 1."""
    raised = np.exp(numbers - numbers.max())
    found: Numbers = raised / raised.sum()
    return found


def sigmoid(numbers: Numbers) -> Numbers:
    """Each number between 0 and 1."""
    found: Numbers = 0.5 * (1 + np.tanh(0.5 * numbers))
    return found


def _numbers(packed: bytes | Sequence[int]) -> Numbers:
    return np.frombuffer(bytes(packed), "<f4").astype(np.float64)
