"""Prompts -> Outcomes, by vLLM: the fast engine on GPUs, on a CPU too.

Promises: rows enter as token ids between two steps, and leave when they end; texts are decoded many at once beside
the steps; a row that vLLM refuses fails alone; what ends vLLM's engine ends this one, so that it is started anew.
Knows nothing of: vLLM's objects (vllm_port.py), what a row becomes for it (vllm_ask.py), processes.
Memory: the rows given. Threads: one steps, one decodes. vLLM's scheduler and model run in processes of its own,
children of this one and members of its group.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import queue
import re
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.model_folder import config_of, context_of, media_of, short_name
from rowmill.engines.options import check_version
from rowmill.engines.prompt import check_prompt, room_for
from rowmill.engines.protocol import Feed
from rowmill.engines.vllm_ask import (
    Ended,
    Row,
    answered,
    failed,
    text_ids,
)
from rowmill.engines.vllm_ladder import ladder
from rowmill.engines.vllm_options import (
    EFFORT,
    VllmOptions,
    checked,
    engine_arguments,
    option_mistakes,
)
from rowmill.engines.vllm_place import place, pool_of
from rowmill.engines.vllm_port import Port, has_failed
from rowmill.engines.vllm_reader import Reader, open_reader
from rowmill.rows import Limits, Outcome, Prompts
from rowmill.storage.temporary import temporary_folder
from rowmill.tokens import open_tokenizer
from rowmill.tokens.answers import AnswerTexts

__all__ = ["EFFORT", "VllmOptions", "check_options", "declare", "ladder", "open", "place"]

OLDEST, NEWEST = (0, 25), (0, 33)
_GPU_SEATS, _CPU_SEATS = 1024, 256
"""What `vllm.LLM` takes by itself on a GPU of 70 GiB, and elsewhere. What it took is known once it is open."""
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
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # A forked engine would hold our ends of the channel open after us.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
_SOCKETS, _LONGEST_FOLDER = "VLLM_RPC_BASE_PATH", 64
"""The kernel takes 107 bytes for the path of a socket; vLLM's names have 36."""
_FAILURES = (RuntimeError, ValueError, TypeError, OSError, AssertionError, ImportError)
"""What vLLM raises while it starts; NotImplementedError and a GPU without memory are RuntimeErrors."""
_CAUSE = re.compile(r"\b\w*(?:Error|Exception)\b: .*")
_POINTER = re.compile(r"root cause|EngineCore encountered", re.IGNORECASE)
_MOST_WORDS = 400
_LOG_TAIL_BYTES = 65536


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each; neither vLLM nor a GPU is needed."""
    return option_mistakes(engine)


def declare(engine: EngineConfig) -> Limits:
    """What the model's config.json and the settings say, without loading anything.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: The hub does not give the model.
    """
    options = checked(engine)
    has_gpu = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))
    replicas = len(place(engine).replicas)
    return Limits(
        takes="ids",
        max_model_tokens=engine.max_model_len or context_of(config_of(engine)),
        seats=(engine.seats or (_GPU_SEATS if has_gpu else _CPU_SEATS)) * replicas,
        replicas=replicas,
        kv_tokens=pool_of(engine),
        starts_slowly=True,
        shares_prefixes=options.enable_prefix_caching is not False,
        sampling=_sampling(options),
        media=media_of(config_of(engine)),
        about=f"vLLM: {short_name(engine.model)}",
    )


def _sampling(options: VllmOptions) -> tuple[str, ...]:
    lora = ("lora",) if options.loras else ()
    return (*_SAMPLING, *lora, *(("tools",) if options.tool_call_parser else ()))


def open(engine: EngineConfig) -> Vllm:
    """Load the model.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: vLLM does not take the settings, or is of a version that is not known.
        MissingExtra: vLLM is not installed.
        EngineDied: vLLM cannot start its engine.
    """
    options = checked(engine)
    declared = declare(engine)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    sockets = _own_sockets()
    if options.cpu_kv_gib:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(options.cpu_kv_gib)
    tokenizer: Any = open_tokenizer(engine)
    if tokenizer is None:
        reason = "the model brings no tokenizer.json; set `engine.tokenizer`"
        raise errors.ConfigError(reason=reason)
    library = _library()
    opened = _opened(engine, options)
    port = Port(opened, loras=_lora_requests(options), is_direct=options.front_end == "direct")
    return Vllm(
        port,
        limits=_limits(declared, opened.vllm_config, library.__version__),
        vocabulary=opened.model_config.get_vocab_size(),
        texts=tokenizer.answer_texts(),
        reader=open_reader(opened, options.reasoning_parser, options.tool_call_parser),
        sockets=sockets,
    )


def _own_sockets() -> Path | None:
    """A folder for the sockets over which vLLM's processes talk, which it never removes; None: the user named one."""
    if _SOCKETS in os.environ:
        return None
    folder = temporary_folder("vllm")
    if len(str(folder)) > _LONGEST_FOLDER:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    os.environ[_SOCKETS] = str(folder)
    return folder


class Vllm:
    """An open vLLM."""

    def __init__(
        self,
        port: Port,
        *,
        limits: Limits,
        vocabulary: int,
        texts: AnswerTexts,
        reader: Reader | None = None,
        sockets: Path | None = None,
    ) -> None:
        self.limits = limits
        self._reader = reader
        self._port = port
        self._vocabulary = vocabulary
        self._texts = texts
        self._out: queue.SimpleQueue[list[Ended | Outcome] | BaseException | None]
        self._out = queue.SimpleQueue()
        self._is_closed = False
        self._sockets = sockets
        self._steps = 0

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        for work, name in ((partial(self._step_all, feed), "steps"), (self._watch, "watch")):
            threading.Thread(target=work, name=name, daemon=True).start()
        while True:
            some = self._out.get()
            if isinstance(some, BaseException):
                raise some
            if some is None:
                return
            yield self._outcomes(some)

    def counters(self) -> dict[str, float]:
        """What the scheduler says of itself; see `channel.Gauge`."""
        counters = self._port.counters
        # A gauge leaves with answers: at that moment, rows that ended together have left their seats.
        means = counters.means()
        return {
            "steps": self._steps,
            "running": round(means.running),
            "waiting_rows": round(means.waiting_rows),
            "kv_use": round(means.kv_use, 4),
            "preemptions": counters.preemptions,
            "hit_rate": round(counters.hit_rate, 4),
        }

    def close(self) -> None:
        """End vLLM's processes."""
        self._is_closed = True
        self._port.close()
        if self._sockets is not None:
            os.environ.pop(_SOCKETS, None)
            shutil.rmtree(self._sockets, ignore_errors=True)

    def _watch(self) -> None:
        """End with vLLM's engine: one that was killed says nothing, and vLLM's client waits for it for ever."""
        processes = multiprocessing.active_children()
        if not processes:
            return
        multiprocessing.connection.wait([process.sentinel for process in processes])
        codes = [process.exitcode for process in processes if process.exitcode is not None]
        if not self._is_closed:
            reason = f"vLLM's engine ended (exit code {codes[0] if codes else 'unknown'}); see the engine's log"
            self._out.put(errors.EngineDied(reason=reason))

    def _step_all(self, feed: Feed) -> None:
        """Take rows, step, until no row is left and none will come."""
        try:
            has_ended = False
            while not (has_ended and self._port.is_idle):
                if not has_ended:
                    has_ended = self._take_all(feed)
                if not self._port.is_idle:
                    self._put(self._port.step())
                    self._steps += 1
        except self._port.dead as error:
            self._out.put(_died(error))
        # Raised again by `run`: the thread must not end without a word.
        except BaseException as error:
            self._out.put(error)
        else:
            self._out.put(None)

    def _take_all(self, feed: Feed) -> bool:
        """Give vLLM what there is now; wait only where it has nothing to do. True: no more will come."""
        while (prompts := feed.take(wait=self._port.is_idle)) is not None:
            if not prompts:
                return False
            self._add_all(prompts)
        return True

    def _add_all(self, prompts: Prompts) -> None:
        began, limit = time.monotonic(), self.limits.max_model_tokens
        refused: list[Ended | Outcome] = []
        for i, ids in enumerate(prompts.row_ids()):
            sampling = prompts.samplings[prompts.sampling_of[i]]
            asked = prompts.max_tokens[i]
            room = room_for(sampling, max_tokens=asked, prompt_tokens=len(ids), limit=limit)
            media = prompts.media.get(prompts.keys[i], ())
            row = Row(prompts.keys[i], ids, asked, room, sampling, began, media=media)
            try:
                check_prompt(ids, asked=asked, limit=limit, vocabulary=self._vocabulary)
                self._port.add(row)
            except errors.RowError as error:
                refused.append(failed(row, error))
        if refused:
            self._out.put(refused)

    def _put(self, ended: list[Ended]) -> None:
        """Let rows go that ended; one that vLLM gave up is asked once more."""
        going: list[Ended | Outcome] = []
        for one in ended:
            if not has_failed(one):
                going.append(one)
            elif one.row.attempts < _TRIES:
                one.row.attempts += 1
                self._port.add(one.row)  # it was taken before, so it is now
            else:
                reason = f"vLLM ended the row without an answer, {_TRIES} times; see its log"
                going.append(failed(one.row, errors.GaveUp(reason=reason)))
        if going:
            self._out.put(going)

    def _outcomes(self, some: list[Ended | Outcome]) -> list[Outcome]:
        """Decode all at once; other threads run on meanwhile."""
        ended = [one for one in some if isinstance(one, Ended)]
        places = [
            (i, j)
            for i, one in enumerate(ended)
            for j, sample in enumerate(one.samples)
            if sample.text is None
        ]
        texts = self._texts.texts([text_ids(ended[i].samples[j]) for i, j in places])
        text_of: list[dict[int, str]] = [{} for _ in ended]
        for (i, j), text in zip(places, texts, strict=True):
            text_of[i][j] = text
        outcomes = [one for one in some if isinstance(one, Outcome)]
        return outcomes + [self._read(*pair) for pair in zip(ended, text_of, strict=True)]

    def _read(self, ended: Ended, texts: dict[int, str]) -> Outcome:
        outcome = answered(ended, texts)
        if self._reader is None:
            return outcome
        samples = [text_ids(sample) for sample in ended.samples]
        samples += samples[:1] * (len(outcome.choices) - len(samples))  # of equal greedy ones
        return self._reader.read(outcome, samples, ended.row.sampling.tools)


def _library() -> Any:
    """The library, of a version that this adapter was written for.

    Raises:
        MissingExtra: It is not installed.
        ConfigError: It is older.
    """
    try:
        import vllm
    except ImportError as error:
        raise errors.MissingExtra(what="`vllm`", extra="vllm") from error
    known = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
    check_version("vLLM", vllm.__version__, OLDEST, extra="vllm", expected=known)
    return vllm


def _opened(engine: EngineConfig, options: VllmOptions) -> Any:
    """VLLM's own engine, open.

    Raises:
        ConfigError: It does not take the settings.
        EngineDied: It cannot be started.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    named = engine_arguments(engine, options)
    unknown = sorted(set(named) - set(EngineArgs.__dataclass_fields__))
    if unknown:
        reason = f"the vLLM installed has no engine argument `{unknown[0]}`; leave `engine.{unknown[0]}` out"
        raise errors.ConfigError(reason=reason)
    if options.loras and current_platform.is_cpu():
        # Up to 0.32 a row without adapter that shares a step with others gets the last slot's: it stays empty.
        named["max_loras"] = len(options.loras) + 1
    # The context decides the defaults of seats and step tokens: this one is for batches.
    context = UsageContext.LLM_CLASS
    try:
        config = EngineArgs(**named).create_engine_config(context)
    except _FAILURES as error:
        words = " ".join(str(error).split())[:_MOST_WORDS]
        reason = f"vLLM does not take the settings of `[engine]`: {words}"
        raise errors.ConfigError(reason=reason) from error
    try:
        return LLMEngine.from_vllm_config(config, usage_context=context)
    except _FAILURES as error:
        raise errors.EngineDied(
            reason=f"vLLM cannot start its engine: {_root_cause() or error}"
        ) from error


def _lora_requests(options: VllmOptions) -> dict[str, Any]:
    from vllm.lora.request import LoRARequest

    return {
        name: LoRARequest(name, number, str(Path(folder).expanduser()))
        for number, (name, folder) in enumerate(sorted(options.loras.items()), 1)
    }


def _limits(declared: Limits, config: Any, version: str) -> Limits:
    """What the open engine says of itself."""
    cache = config.cache_config
    # Since 0.26 vLLM says it; models with several kinds of layers need more than this product.
    tokens = getattr(cache, "kv_cache_size_tokens", None)
    return msgspec.structs.replace(
        declared,
        max_model_tokens=config.model_config.max_model_len,
        seats=config.scheduler_config.max_num_seqs,
        replicas=1,
        step_tokens=config.scheduler_config.max_num_batched_tokens,
        kv_tokens=tokens or (cache.num_gpu_blocks or 0) * cache.block_size,
        shares_prefixes=bool(cache.enable_prefix_caching),
        about=declared.about.replace("vLLM", f"vLLM {version}", 1),
    )


def _died(error: BaseException) -> errors.EngineDied:
    """VLLM's engine is gone; what it said may hold a row's text, so only its kind is told."""
    kind = _root_cause().partition(":")[0] or type(error).__name__
    return errors.EngineDied(reason=f"vLLM's engine ended ({kind}); see the engine's log")


def _root_cause() -> str:
    """The error that vLLM's processes wrote last, out of the log that this process writes into as well."""
    try:
        with Path("/proc/self/fd/2").resolve(strict=True).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    causes: list[str] = _CAUSE.findall(text)
    # Errors that only point at another one come after it.
    roots = [found for found in causes if not _POINTER.search(found)]
    return (roots or causes or [""])[-1][:_MOST_WORDS]
