"""Rows of a feed -> Outcomes with numbers, by forward passes alone: classes, scores of pairs, weights of labels.

Promises: texts of like length go through the model together; a text that the model fails on fails alone.
Knows nothing of: what is computed of a text (transformers_heads.py, transformers_labels.py).
Memory: the rows taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from rowmill import errors
from rowmill.engines.padded import Text, Waiting
from rowmill.engines.prompt import check_prompt
from rowmill.engines.protocol import Feed
from rowmill.engines.texts import failed_text
from rowmill.engines.vectors import parts_of
from rowmill.rows import Limits, Outcome, Prompts

_FAILURES = (RuntimeError, ValueError, IndexError, TypeError)
"""What torch raises where a text is none for the model; to be out of memory is a RuntimeError as well."""


class Computes(Protocol):
    """What becomes of texts."""

    vocabulary: int
    least: int
    """Tokens that must fit into the context behind a text."""

    def numbers(self, texts: Sequence[Text]) -> Any:
        """Numbers of each text: as many rows as texts, float32, finite or not."""
        ...


class Numbers:
    """An open model whose answers are numbers."""

    def __init__(self, model: Computes, limits: Limits) -> None:
        self.limits = limits
        self._model = model
        self._waiting = Waiting(limits.step_tokens)
        self._steps = self._computed = self._needed = 0

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        has_ended = False
        while True:
            while not has_ended and self._waiting.rows < 2 * self.limits.seats:
                prompts = feed.take(wait=not self._waiting)
                has_ended = prompts is None
                if not prompts:
                    break
                yield self._take(prompts)
            if self._waiting:
                yield self._advance(self._waiting.step())
            elif has_ended:
                return

    def counters(self) -> dict[str, Any]:
        """See `protocol.Engine`."""
        return {
            "steps": self._steps,
            "waiting_rows": self._waiting.rows,
            "filled_share": 1 - self._needed / max(self._computed, 1),
        }

    def close(self) -> None:
        """Free the model."""
        del self._model

    def _take(self, prompts: Prompts) -> list[Outcome]:
        """Let rows wait; the outcomes of those that cannot be computed."""
        refused, fine = [], []
        for i, ids in enumerate(prompts.row_ids()):
            key = prompts.keys[i]
            parts = parts_of(ids, prompts.pieces.get(key, ()), prompts.pairs.get(key, ()))
            try:
                for part in parts:
                    check_prompt(
                        part,
                        limit=self.limits.max_model_tokens - self._model.least,
                        vocabulary=self._model.vocabulary,
                        answers=False,
                    )
                fine.append(i)
            except errors.RowError as error:
                refused.append(failed_text(key, len(ids), error))
        self._waiting.add(prompts.take(fine) if refused else prompts)
        return refused

    def _advance(self, texts: list[Text]) -> list[Outcome]:
        self._steps += 1
        self._needed += sum(text.length for text in texts)
        self._computed += len(texts) * max(text.length for text in texts)
        try:
            found = self._model.numbers(texts)
        except _FAILURES:
            if len(texts) == 1:
                raise
            return [one for text in texts for one in self._alone(text)]
        return list(self._waiting.finished(texts, _packed(found)))

    def _alone(self, text: Text) -> Iterator[Outcome]:
        """A text of a step that failed: who fails alone, too, is the one."""
        try:
            found = self._model.numbers([text])
        except _FAILURES as error:
            reason = f"the model fails on this text: {type(error).__name__}"
            yield from self._waiting.failed(text, errors.Refused.kind, reason)
        else:
            yield from self._waiting.finished([text], _packed(found))


def _packed(found: Any) -> list[bytes]:
    matrix = np.ascontiguousarray(found, "<f4")
    return [row.tobytes() for row in matrix]
