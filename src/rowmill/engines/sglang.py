"""Prompts -> Outcomes, by SGLang in this process and its children.

Promises: rows enter as token ids, each for itself, and leave when they end; of rows with one beginning the first goes a step
before the others, so that its cache serves them; a row that SGLang refuses fails alone; what ends its scheduler ends this.
Knows nothing of: which rows share what (leaders.py), what a row becomes for SGLang (sglang_ask.py).
Memory: the rows given. Threads: one runs SGLang's event loop, one takes rows.
Source: SGLang 0.5.14 `entrypoints/engine.py`, `managers/tokenizer_manager.py`: `generate_request` is what `async_generate` calls.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.leaders import Leaders
from rowmill.engines.model_folder import config_of, context_of, short_name
from rowmill.engines.options import check_version
from rowmill.engines.prompt import check_prompt, room_for
from rowmill.engines.protocol import Feed, Placement, Replica
from rowmill.engines.sglang_ask import Answer, Row, answer_of, answered, failed, parameters
from rowmill.engines.sglang_options import (
    EFFORT,
    SglangOptions,
    checked,
    engine_arguments,
    option_mistakes,
)
from rowmill.rows import Limits, Outcome, Prompts
from rowmill.size.gpus import gpus_seen

__all__ = ["EFFORT", "SglangOptions", "check_options", "declare", "open", "place"]

OLDEST = (0, 5)
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
    "seed_per_row",
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
_MOST_WORDS = 400


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
    return Limits(
        takes="ids",
        max_model_tokens=engine.max_model_len or context_of(config_of(engine)),
        seats=(engine.seats or _SEATS) * replicas,
        replicas=replicas,
        kv_tokens=(options.max_total_tokens or 0) * replicas,
        starts_slowly=True,
        shares_prefixes=not (options.model_extra or {}).get("disable_radix_cache"),
        sampling=_SAMPLING,
        about=f"SGLang: {short_name(engine.model)}",
    )


def open(engine: EngineConfig) -> Sglang:
    """Load the model.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: SGLang does not take the settings, or is of a version that is not known.
        MissingExtra: SGLang is not installed.
        EngineDied: SGLang cannot start its scheduler.
    """
    options = checked(engine)
    library = _library()
    try:
        opened = library.Engine(**engine_arguments(engine, options))
    except _FAILURES as error:
        words = " ".join(str(error).split())[:_MOST_WORDS] or type(error).__name__
        raise errors.EngineDied(reason=f"SGLang cannot start its engine: {words}") from error
    told = opened.get_server_info()
    vocabulary = opened.tokenizer_manager.model_config.vocab_size
    limits = msgspec.structs.replace(
        declare(engine),
        max_model_tokens=opened.tokenizer_manager.model_config.context_len,
        seats=engine.seats or _seats_of(told),
        replicas=1,
        kv_tokens=int(told.get("max_total_num_tokens") or 0),
        about=f"SGLang {library.__version__}: {short_name(engine.model)}",
    )
    return Sglang(opened, limits=limits, vocabulary=vocabulary)


class Sglang:
    """An open SGLang."""

    def __init__(self, engine: Any, *, limits: Limits, vocabulary: int) -> None:
        from sglang.srt.managers.io_struct import GenerateReqInput

        self.limits = limits
        self._request = GenerateReqInput
        self._engine, self._vocabulary = engine, vocabulary
        self._loop: asyncio.AbstractEventLoop = engine.loop
        self._leaders: Leaders[Row] = Leaders()
        self._out: queue.SimpleQueue[list[Outcome] | BaseException | None] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = self._ended = self._number = 0

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        threading.Thread(target=self._serve, args=(feed,), name="serve", daemon=True).start()
        while (some := self._out.get()) is not None:
            if isinstance(some, BaseException):
                raise some
            yield some

    def counters(self) -> dict[str, float]:
        """See `channel.Gauge`."""
        return {
            "steps": self._ended,
            "running": self._running,
            "waiting_rows": self._leaders.num_waiting,
        }

    def close(self) -> None:
        """End SGLang's processes."""
        self._engine.shutdown()

    def _serve(self, feed: Feed) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._take_all(feed))
        # Raised again by `run`: the thread must not end without a word.
        except BaseException as error:
            self._out.put(error)
        else:
            self._out.put(None)

    async def _take_all(self, feed: Feed) -> None:
        """Take rows as they come, and wait until the last is answered."""
        taken: asyncio.Queue[Prompts | None] = asyncio.Queue()

        def take() -> None:
            while (prompts := feed.take(wait=True)) is not None:
                self._loop.call_soon_threadsafe(taken.put_nowait, prompts)
            self._loop.call_soon_threadsafe(taken.put_nowait, None)

        threading.Thread(target=take, name="take", daemon=True).start()
        while (prompts := await taken.get()) is not None:
            self._go(self._leaders.add(self._rows(prompts)))
        while self._tasks:
            await asyncio.wait(self._tasks)

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
                self._out.put([failed(row, error)])
            else:
                yield row.key, ids, row

    def _go(self, rows: list[tuple[Row, bool]]) -> None:
        for row, is_leader in rows:
            task = self._loop.create_task(self._answer(row, is_leader=is_leader))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, row: Row, *, is_leader: bool) -> None:
        """Ask for a row, let those go that wait for its first token, and hand its outcome on."""
        self._running += 1
        try:
            outcome = await self._outcome(row, is_leader=is_leader)
        finally:
            self._running -= 1
            self._ended += 1
            self._go(self._leaders.computed(row.key))
        self._out.put([outcome])

    async def _outcome(self, row: Row, *, is_leader: bool) -> Outcome:
        while True:
            try:
                first = await self._sample(row, 0, tells_first_token=is_leader)
                asked = [self._sample(row, i) for i in range(1, row.num_samples)]
                others = await asyncio.gather(*asked)
                return answered(row, [first, *others])
            except errors.GaveUp as error:
                if row.attempts >= _TRIES:
                    return failed(row, error)
                row.attempts += 1
            except ValueError as error:
                words = " ".join(str(error).split())[:_MOST_WORDS]
                return failed(row, errors.Refused(reason=f"SGLang: {words}"))

    async def _sample(
        self, row: Row, number: int, *, tells_first_token: bool = False
    ) -> Answer:
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
        async for found in self._engine.tokenizer_manager.generate_request(request, None):
            last = found
            if tells_first_token:
                tells_first_token = False
                self._go(self._leaders.computed(row.key))
        return answer_of(last, sampling)


def _library() -> Any:
    """The library, of a version that this adapter was written for.

    Raises:
        MissingExtra: It is not installed.
        ConfigError: It is older.
    """
    try:
        import sglang
    except ImportError as error:
        raise errors.MissingExtra(what="`sglang`", extra="sglang") from error
    check_version(
        "SGLang", sglang.__version__, OLDEST, extra="sglang", expected="0.5.12 to 0.5.23"
    )
    return sglang


def _seats_of(told: dict[str, Any]) -> int:
    """Rows that run at once, by what the open engine says."""
    states = told.get("internal_states") or [{}]
    found = states[0].get("effective_max_running_requests_per_dp") or told.get(
        "max_running_requests"
    )
    return int(found or _SEATS)
