"""What a seat of the llama.cpp engine needs: room in the KV cache, and a row's way to its outcome.

Promises: rows get room in the order they ask, so that a long one is never passed for ever.
Knows nothing of: llama.cpp.
Memory: a number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rowmill import errors
from rowmill.engines.llamacpp_ask import Sample
from rowmill.rows import Ids, Outcome, Prompts, Sampling


class Room:
    """Tokens of the KV cache, handed out and given back."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._free = tokens
        self._changed = threading.Condition()
        self._turn = threading.Lock()

    @contextmanager
    def taken(self, tokens: int) -> Iterator[None]:
        """Wait for room and hold it; more than there is in all is taken as all."""
        tokens = min(tokens, self._tokens)
        # The turn is held while waiting: nobody smaller slips in before.
        with self._turn, self._changed:
            self._changed.wait_for(lambda: self._free >= tokens)
            self._free -= tokens
        try:
            yield
        finally:
            with self._changed:
                self._free += tokens
                self._changed.notify()


class SeatedRow:
    """A row while it is worked on."""

    def __init__(self, prompts: Prompts, row: int, ids: Ids) -> None:
        self.key = prompts.keys[row]
        self.ids = ids
        self.max_tokens = prompts.max_tokens[row]
        self.sampling: Sampling = prompts.samplings[prompts.sampling_of[row]]
        self.room = 0
        """Most tokens to generate for one sample."""

    def answered(self, samples: list[Sample], attempts: int, began: float) -> Outcome:
        """The outcome with all samples."""
        first, sampling = samples[0], self.sampling
        has_more = sampling.n > 1 or sampling.return_token_ids or sampling.logprobs is not None
        return Outcome(
            key=self.key,
            status="ok",
            text=first.choice.text,
            finish_reason=first.choice.finish_reason,
            choices=[sample.choice for sample in samples] if has_more else [],
            prompt_tokens=first.prompt_tokens,
            cached_tokens=first.cached_tokens,
            output_tokens=sum(sample.output_tokens for sample in samples),
            max_tokens=self.max_tokens,
            attempts=attempts,
            seconds=round(time.monotonic() - began, 6),
        )

    def failed(self, error: errors.RowError, attempts: int, began: float) -> Outcome:
        """The outcome of a row that gets no answer."""
        return Outcome(
            key=self.key,
            status="error",
            prompt_tokens=len(self.ids),
            max_tokens=self.max_tokens,
            attempts=attempts,
            seconds=round(time.monotonic() - began, 6),
            error_kind=error.kind,
            error=str(error),
        )
