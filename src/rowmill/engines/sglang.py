"""Prompts -> Outcomes, by SGLang in this process and its children.

Promises: rows enter as token ids, each for itself, and leave when they end; of rows with one beginning the first goes a step
before the others, so that its cache serves them; a row that SGLang refuses fails alone; what ends its scheduler ends this.
Knows nothing of: which rows share what (leaders.py), what a row becomes for SGLang (sglang_ask.py).
Memory: the rows given. Threads: the main one runs SGLang's event loop, another takes rows.
Source: SGLang 0.5.12 to 0.5.23 `entrypoints/engine.py`, `managers/tokenizer_manager.py`: `generate_request` is what
`async_generate` calls.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.leaders import Leaders
from rowmill.engines.model_folder import config_of, context_of, short_name
from rowmill.engines.options import library
from rowmill.engines.prompt import check_prompt, room_for
from rowmill.engines.protocol import Feed, Placement, Replica
from rowmill.engines.sglang_ask import (
    MOST_WORDS,
    Answer,
    Row,
    answer_of,
    answered,
    failed,
    parameters,
)
from rowmill.engines.sglang_options import (
    EFFORT,
    KEPT_TOKENS,
    SglangOptions,
    check_arguments,
    checked,
    engine_arguments,
    option_mistakes,
)
from rowmill.rows import Limits, Outcome, Prompts
from rowmill.size.gpus import gpus_seen

__all__ = ["EFFORT", "SglangOptions", "check_options", "declare", "open", "place"]

OLDEST, NEWEST = (0, 5, 12), (0, 5, 23)
_SEATS = 1024
_TRIES = 2
_SAMPLING = (
    "top_k",
    "min_p",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logprobs",
    "choices",
    "schema",
    "regex",
    "ignore_eos",
    "return_token_ids",
)
_FAILURES = (
    RuntimeError,
    ValueError,
    TypeError,
    OSError,
    AssertionError,
    ImportError,
    EOFError,
)
"""What SGLang raises while it starts."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each; neither SGLang nor a GPU is needed."""
    return option_mistakes(engine)


def place(engine: EngineConfig) -> Placement:
    """A replica for each group of `tp_size` GPUs that this process may use.

    Raises:
        ConfigError: more GPUs are asked for than there are.
    """
    gpus = gpus_seen(os.environ.get("CUDA_VISIBLE_DEVICES"))
    width = int(engine.options.get("tp_size") or 1) * int(engine.options.get("pp_size") or 1)
    if not gpus:
        return Placement([Replica(engine)])
    if width > len(gpus):
        reason = (
            f"tensor x pipeline parallel is {width}, and this process may use {len(gpus)} GPUs;"
            " lower `engine.tp_size`"
        )
        raise errors.ConfigError(reason=reason)
    groups = [gpus[i : i + width] for i in range(0, len(gpus) - width + 1, width)]
    seen = [",".join(str(gpu.index) for gpu in group) for group in groups]
    told = "one a GPU" if width == 1 else f"one for each {width} GPUs"
    replicas = [Replica(engine, {"CUDA_VISIBLE_DEVICES": indices}) for indices in seen]
    return Placement(replicas, reason=told)


def declare(engine: EngineConfig) -> Limits:
    """What the model's config.json and the settings say, without loading anything.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: The hub does not give the model.
    """
    options = checked(engine)
    replicas = len(place(engine).replicas)
    longest = max(1, context_of(config_of(engine)) - KEPT_TOKENS)
    return Limits(
        takes="ids",
        max_model_tokens=min(engine.max_model_len or longest, longest),
        seats=(engine.seats or _SEATS) * replicas,
        replicas=replicas,
        kv_tokens=(options.max_total_tokens or 0) * replicas,
        starts_slowly=True,
        shares_prefixes=not (options.model_extra or {}).get("disable_radix_cache"),
        sampling=_sampling(options),
        about=f"SGLang: {short_name(engine.model)}",
    )


def _sampling(options: SglangOptions) -> tuple[str, ...]:
    """Without `enable_deterministic_inference` SGLang takes a row's seed and does not draw by it."""
    return (*_SAMPLING, "seed_per_row") if options.enable_deterministic_inference else _SAMPLING


def open(engine: EngineConfig) -> Sglang:
    """Load the model.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: SGLang does not take the settings, or is of a version that is not known.
        MissingExtra: SGLang is not installed.
        EngineDied: SGLang cannot start its scheduler.
    """
    options = checked(engine)
    declared = declare(engine)
    sglang = library("sglang", "SGLang", OLDEST, NEWEST, extra="sglang")
    named = engine_arguments(engine, options)
    check_arguments(named)
    try:
        opened = sglang.Engine(**named)
        told = opened.get_server_info()
    except _FAILURES as error:
        words = " ".join(str(error).split())[:MOST_WORDS] or type(error).__name__
        raise errors.EngineDied(reason=f"SGLang cannot start its engine: {words}") from error
    _own_signals(opened.loop)
    limits = _limits(declared, told, seats=engine.seats)
    about = f"SGLang {sglang.__version__}: {short_name(engine.model)}"
    return Sglang(
        opened,
        limits=msgspec.structs.replace(limits, about=about),
        vocabulary=int(opened.tokenizer_manager.model_config.vocab_size),
    )


class Sglang:
    """An open SGLang."""

    def __init__(self, engine: Any, *, limits: Limits, vocabulary: int) -> None:
        from fastapi import HTTPException
        from sglang.srt.managers.io_struct import GenerateReqInput

        self.limits = limits
        self._request, self._turned_away = GenerateReqInput, HTTPException
        self._engine, self._vocabulary = engine, vocabulary
        self._loop: asyncio.AbstractEventLoop = engine.loop
        self._leaders: Leaders[Row] = Leaders()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: list[Outcome] = []
        self._changed = asyncio.Event()
        self._broken: BaseException | None = None
        self._is_fed = False
        self._running = self._steps = self._number = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._heard_at = 0.0

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        self._is_fed = False
        threading.Thread(target=self._take, args=(feed,), name="take", daemon=True).start()
        while (outcomes := self._loop.run_until_complete(self._some())) is not None:
            yield outcomes

    def counters(self) -> dict[str, float]:
        """See `channel.Gauge`."""
        heard_at = self._engine.tokenizer_manager.last_receive_tstamp
        if heard_at != self._heard_at:
            self._heard_at = heard_at
            self._steps += 1
        return {
            "steps": self._steps,
            "running": min(self._running, self.limits.seats),
            "waiting_rows": self._leaders.num_waiting
            + max(0, self._running - self.limits.seats),
            "hit_rate": self._cached_tokens / max(1, self._prompt_tokens),
        }

    def close(self) -> None:
        """End SGLang's processes."""
        self._engine.shutdown()

    def _take(self, feed: Feed) -> None:
        """Carry rows from the feed to the loop, in a thread of its own: the feed blocks."""
        tell = self._loop.call_soon_threadsafe
        while (prompts := feed.take(wait=True)) is not None:
            tell(self._came, prompts)
        tell(self._came, None)

    async def _some(self) -> list[Outcome] | None:
        """The outcomes that are there, at least one; None once all are out and no row will come."""
        while True:
            if self._broken is not None:
                raise self._broken
            if self._ready:
                ready, self._ready = self._ready, []
                return ready
            if self._is_fed and not self._tasks:
                return None
            self._changed.clear()
            await self._changed.wait()

    def _came(self, prompts: Prompts | None) -> None:
        if prompts is None:
            self._is_fed = True
        else:
            self._go(self._leaders.add(self._rows(prompts)))
        self._changed.set()

    def _rows(self, prompts: Prompts) -> Iterator[tuple[int, Any, Row]]:
        """Rows that can be asked; the others are answered at once."""
        began, limit = time.monotonic(), self.limits.max_model_tokens
        for i, ids in enumerate(prompts.row_ids()):
            sampling = prompts.samplings[prompts.sampling_of[i]]
            asked = prompts.max_tokens[i]
            room = room_for(sampling, max_tokens=asked, prompt_tokens=len(ids), limit=limit)
            row = Row(prompts.keys[i], ids, asked, room, sampling, began)
            try:
                check_prompt(ids, asked=asked, limit=limit, vocabulary=self._vocabulary)
            except errors.RowError as error:
                self._ready.append(failed(row, error))
            else:
                yield row.key, ids, row

    def _go(self, rows: list[tuple[Row, bool]]) -> None:
        for row, is_leader in rows:
            task = self._loop.create_task(self._answer(row, is_leader=is_leader))
            self._tasks.add(task)
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        """A row is through. What was raised is of SGLang, not of the row: it ends this engine, and a new one is asked."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
        self._changed.set()

    async def _answer(self, row: Row, *, is_leader: bool) -> None:
        """Ask for a row, let those go that wait for its first token, and hand its outcome on."""
        self._running += 1
        try:
            outcome = await self._outcome(row, is_leader=is_leader)
        finally:
            self._running -= 1
            self._go(self._leaders.computed(row.key))
        self._prompt_tokens += outcome.prompt_tokens
        self._cached_tokens += outcome.cached_tokens
        self._ready.append(outcome)

    async def _outcome(self, row: Row, *, is_leader: bool) -> Outcome:
        while True:
            try:
                answers = [await self._sample(row, 0, tells_first_token=is_leader)]
                if row.num_samples > 1:
                    answers += await self._others(row)
                return answered(row, answers)
            except errors.Refused as error:
                return failed(row, error)
            except errors.GaveUp as error:
                if row.attempts >= _TRIES:
                    return failed(row, error)
                row.attempts += 1

    async def _others(self, row: Row) -> list[Answer]:
        """The samples after the first, all at once: its prompt is in the cache."""
        numbers = range(1, row.num_samples)
        tasks = [self._loop.create_task(self._sample(row, number)) for number in numbers]
        await asyncio.wait(tasks)
        return [task.result() for task in tasks]

    async def _sample(
        self, row: Row, number: int, *, tells_first_token: bool = False
    ) -> Answer:
        """One sample.

        Raises:
            Refused: SGLang does not take the row.
            GaveUp: It ended the row without an answer.
        """
        sampling = row.sampling
        self._number += 1
        request = self._request(
            input_ids=row.ids.tolist(),
            sampling_params=parameters(row, sample=number),
            rid=f"r{self._number}",
            stream=tells_first_token,
            return_logprob=sampling.logprobs is not None,
            top_logprobs_num=sampling.logprobs or 0,
            return_text_in_logprobs=sampling.logprobs is not None,
        )
        last: Any = None
        asking = self._engine.tokenizer_manager.generate_request(request, None)
        try:
            async with aclosing(asking) as parts:
                async for part in parts:
                    last = part
                    if tells_first_token:
                        tells_first_token = False
                        self._go(self._leaders.computed(row.key))
        except ValueError as error:
            raise errors.Refused(reason=_told(error)) from error
        except self._turned_away as error:
            raise errors.GaveUp(reason=_told(error)) from error
        return answer_of(last, sampling)


def _told(error: Exception) -> str:
    words = getattr(error, "detail", None) or str(error) or type(error).__name__
    return f"SGLang: {' '.join(str(words).split())[:MOST_WORDS]}"


def _limits(declared: Limits, told: dict[str, Any], *, seats: int | None) -> Limits:
    """What the open engine says of itself."""
    pool, page = int(told["max_total_num_tokens"]), int(told.get("page_size") or 1)
    states = told.get("internal_states") or [{}]
    most = states[0].get("effective_max_running_requests_per_dp")
    # A row must fit in the pool with a page to spare at either end, or waits in SGLang's queue for ever.
    longest = min(declared.max_model_tokens, told["max_req_input_len"], pool - 2 * page - 2)
    return msgspec.structs.replace(
        declared,
        max_model_tokens=longest,
        seats=int(most or seats or _SEATS),
        replicas=1,
        kv_tokens=pool,
    )


def _own_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Hear of the end of SGLang's processes whatever this one does: its own handlers wait for a loop that runs."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGQUIT):
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGQUIT, _end)


def _end(*_: object) -> None:
    """SGLang sends SIGQUIT when a process of it is gone. Whoever started this one ends what is left of its group."""
    os.write(2, b"a process of SGLang ended\n")
    os._exit(1)
