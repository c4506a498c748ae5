"""Samples with their names -> what transformers' own continuous batching says of them.

Promises: greedy samples alone are the most likely tokens; beside drawn ones each has its own temperature, top_k and
top_p; that the library's thread ended is raised, never waited for.
Knows nothing of: rows, texts, outcomes.
Memory: keys and values of `kv_tokens`, in pages. Threads: the library's, which steps as long as it has samples.
Source: transformers 5.19, generation/continuous_batching.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines.transformers_draw import Draw

PAGE_TOKENS = 256
"""Of a page. Flash attention reads no smaller ones."""
_FREE_SHARE = 0.8
"""Of the memory that is free beside the weights, where it is measured: what the library takes where rows draw."""
_NO_END = -1
_LEAST_TEMPERATURE = 1e-4
"""Below it logits overflow, and there is one likeliest token."""
_LAST_WORDS_S = 5.0
_FAILURES = (RuntimeError, ValueError, TypeError, OSError, ImportError, MemoryError)
"""What the library raises for a model or a pool that it cannot take; MemoryError is its own sum."""
_MOST_WORDS = 300


class Told(msgspec.Struct, frozen=True):
    """What is known of a sample now."""

    name: str
    tokens: list[int]
    """All that it said so far."""
    is_whole: bool
    failure: str = ""
    """Why there will be no answer."""


class Pool(msgspec.Struct, frozen=True):
    """What is asked of the library."""

    seats: int
    step_tokens: int
    kv_tokens: int
    """0: as many as the memory that is free has room for."""


def whole_pages(tokens: int) -> int:
    """Tokens of the pages that so many need."""
    return -(-tokens // PAGE_TOKENS) * PAGE_TOKENS


class Pages:
    """The library's batch."""

    def __init__(self, model: Any, pool: Pool) -> None:
        """Take the memory, and get ready.

        Raises:
            ConfigError: The library cannot batch this model, or has no memory for that many tokens.
        """
        if model.device.type == "cpu" and find_spec("psutil") is None:
            reason = '`engine.batching = "paged"` on a processor needs psutil; run `pip install psutil`'
            raise errors.ConfigError(reason=reason)
        # It writes token ids of prompts into the log.
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
        self._model = model
        self._pool = pool
        self._steps_before = 0
        self.draws = False
        """Whether samples may be drawn. It is not so at first: filters sort all logits at each step."""
        self._open()
        cache = self._manager.batch_processor.cache
        self.kv_tokens = int(cache.num_blocks) * PAGE_TOKENS
        """Tokens that it holds."""
        self.shares_beginnings = bool(cache.use_prefix_sharing)
        self._pool = msgspec.structs.replace(pool, kv_tokens=self.kv_tokens)

    def draw(self) -> None:
        """Have samples drawn from now on, greedy ones beside them; only while there are none."""
        self._steps_before = self.steps
        self.close()
        self.draws = True
        self._open()

    @property
    def steps(self) -> int:
        """Steps so far."""
        return self._steps_before + int(getattr(self._manager, "current_batch", 0))

    @property
    def running(self) -> int:
        """Samples that have keys and values."""
        processor = self._manager.batch_processor
        return len(processor.scheduler.active_requests) if processor else 0

    @property
    def use(self) -> float:
        """Share of the pages that is taken; those kept for a beginning that may come again are."""
        processor = self._manager.batch_processor
        return 1.0 - float(processor.cache.compute_free_capacity()) if processor else 0.0

    def add(
        self,
        name: str,
        ids: list[int],
        *,
        room: int,
        ends: Collection[int],
        draw: Draw,
        is_watched: bool,
    ) -> None:
        """Let a sample in.

        Args:
            name: by which it is told of.
            ids: of the prompt.
            room: most tokens to say.
            ends: tokens that end it.
            draw: how it is drawn.
            is_watched: it is told of at each token, not only at its end.

        Raises:
            EngineDied: The library's thread ended.
        """
        taken = self._manager.add_request(
            ids,
            request_id=name,
            max_new_tokens=room,
            streaming=is_watched,
            eos_token_id=list(ends) or _NO_END,
            **(self._drawn(draw) if self.draws else {}),
        )
        if taken is None:
            raise self._died()

    def cancel(self, name: str) -> None:
        """Let a sample go."""
        self._manager.cancel_request(name)

    def told(self, *, wait_s: float) -> list[Told]:
        """What there is to tell, in the order in which it happened; nothing after so long.

        Raises:
            EngineDied: The library's thread ended.
        """
        found = []
        result = self._manager.get_result(timeout=wait_s)
        if result is None and not self._is_well:
            raise self._died()
        while result is not None:
            # A thread that ends fails all samples first, and says why behind them.
            if result.error is not None and not self._is_well:
                raise self._died()
            found.append(
                Told(
                    result.request_id,
                    result.generated_tokens,
                    result.is_finished(),
                    result.error or "",
                )
            )
            result = self._manager.get_result(timeout=0)
        return found

    def close(self) -> None:
        """End the thread, and free the pages."""
        self._manager.stop(block=True, timeout=_LAST_WORDS_S, hard_stop=True)
        self._manager.destroy()

    @property
    def _is_well(self) -> bool:
        status = self._manager.background_thread_status
        return bool(self._manager.is_running() and status.can_accept_new_requests() is None)

    def _died(self) -> errors.EngineDied:
        """Its words may hold a row's tokens: they are in the log, only their kind is told."""
        until = time.monotonic() + _LAST_WORDS_S
        while self._manager.is_running() and time.monotonic() < until:
            time.sleep(0.01)
        cause = self._manager.background_thread_status.fatal_error
        kind = type(cause).__name__ if cause is not None else "without a word"
        reason = f"the batching thread of transformers ended ({kind}); see the engine's log"
        died = errors.EngineDied(reason=reason)
        died.__cause__ = cause
        return died

    def _drawn(self, draw: Draw) -> dict[str, Any]:
        """The library's words for how a sample is drawn: all of them, since what is left out is as of another."""
        if draw.temperature < _LEAST_TEMPERATURE:
            # Of equally likely tokens, not rare in 16 bits, the filter for the sum leaves one; top_k leaves all.
            return {"temperature": 1.0, "top_k": 1, "top_p": 0.0}
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        return {
            "temperature": float(draw.temperature),
            "top_k": min(draw.top_k or vocabulary, vocabulary),
            "top_p": float(draw.top_p),
        }

    def _open(self) -> None:
        """Raises: as `__init__`."""
        try:
            self._manager = self._model.init_continuous_batching(
                generation_config=self._generation(),
                continuous_batching_config=self._batching(),
            )
            self._manager.warmup()
        except _FAILURES as error:
            words = " ".join(str(error).split())[:_MOST_WORDS]
            held = f"{self._pool.kv_tokens:,} tokens" if self._pool.kv_tokens else "the tokens"
            reason = (
                f"transformers cannot batch with pages that hold {held}: {type(error).__name__}: {words};"
                ' lower `engine.batch_tokens`, or set `engine.batching = "padded"`'
            )
            raise errors.ConfigError(reason=reason) from error
        self._manager.start()

    def _generation(self) -> Any:
        from transformers import GenerationConfig

        told: Mapping[str, Any] = {"eos_token_id": _NO_END, "pad_token_id": 0}
        if not self.draws:
            return GenerationConfig(do_sample=False, **told)
        # Values that change something: where they do not, the library leaves the filter out for all.
        return GenerationConfig(do_sample=True, temperature=0.5, top_k=1, top_p=0.5, **told)

    def _batching(self) -> Any:
        import torch
        from transformers import ContinuousBatchingConfig

        tokens = self._pool.kv_tokens
        return ContinuousBatchingConfig(
            page_size=PAGE_TOKENS,
            num_blocks=whole_pages(tokens) // PAGE_TOKENS if tokens else None,
            max_memory_percent=None if tokens else _FREE_SHARE,
            max_batch_tokens=self._pool.step_tokens,
            max_requests_per_batch=self._pool.seats,
            per_request_processors=self.draws,
            # Flash attention has no numbers of 32 bits.
            auto_switch_to_flash=self._model.dtype != torch.float32,
        )
