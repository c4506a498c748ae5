"""Prompts -> Outcomes, by vLLM: the fast engine on GPUs, on a CPU too.

Promises: rows enter as token ids between two steps, and leave when they end; texts are decoded many at once beside
the steps; a row that vLLM refuses fails alone; what ends vLLM's engine ends this one, so that it is started anew.
Knows nothing of: vLLM's objects (vllm_port.py), what a row becomes for it (vllm_ask.py), processes.
Memory: the rows given. Threads: one steps, one decodes. vLLM's scheduler and model run in processes of its own,
children of this one and members of its group.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.model_folder import (
    audio_rate_of,
    config_of,
    media_of,
    short_name,
    text_context,
)
from rowmill.engines.options import library
from rowmill.engines.vllm_graphs import graphs_for_seats
from rowmill.engines.vllm_ladder import ladder
from rowmill.engines.vllm_loop import MOST_WORDS, root_cause
from rowmill.engines.vllm_numbers import NumbersPort, VllmNumbers
from rowmill.engines.vllm_options import (
    EFFORT,
    VllmOptions,
    checked,
    engine_arguments,
    option_mistakes,
)
from rowmill.engines.vllm_place import place, pool_of
from rowmill.engines.vllm_port import Port
from rowmill.engines.vllm_reader import open_reader
from rowmill.engines.vllm_sockets import own_sockets
from rowmill.engines.vllm_sorts import (
    head_mistakes_of,
    is_pooled,
    limits_of_numbers,
    sort_of,
    told_of_numbers,
    with_runner,
)
from rowmill.engines.vllm_texts import Vllm
from rowmill.rows import Limits
from rowmill.size.gpus import has_driver
from rowmill.tokens import open_tokenizer

__all__ = [
    "EFFORT",
    "KINDS",
    "Vllm",
    "VllmOptions",
    "check_options",
    "declare",
    "ladder",
    "open",
    "place",
]

KINDS = frozenset(("chat", "generate", "embed", "classify", "score", "rerank"))
"""What it can be asked for."""

OLDEST, NEWEST = (0, 25), (0, 33)
_GPU_SEATS, _CPU_SEATS = 1024, 256
"""What `vllm.LLM` takes by itself on a GPU of 70 GiB, and elsewhere. What it took is known once it is open."""
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
_FEW_CORES = 4
"""On a processor with so few vLLM's engine computes in the adapter's own process: in one of its own, as it would by itself,
both want the same cores, and the same rows took 119 s in place of 73 s on two."""
_FAILURES = (RuntimeError, ValueError, TypeError, OSError, AssertionError, ImportError)
"""What vLLM raises while it starts; NotImplementedError and a GPU without memory are RuntimeErrors."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each; neither vLLM nor a GPU is needed."""
    found = option_mistakes(engine)
    return found or head_mistakes_of(engine)


def declare(engine: EngineConfig) -> Limits:
    """What the model's config.json and the settings say, without loading anything.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: The hub does not give the model.
    """
    options = checked(engine)
    replicas = len(place(engine).replicas)
    config = config_of(engine)
    media = media_of(config)
    limits = Limits(
        takes="ids",
        max_model_tokens=engine.max_model_len or text_context(config),
        seats=(engine.seats or (_GPU_SEATS if has_driver() else _CPU_SEATS)) * replicas,
        replicas=replicas,
        kv_tokens=pool_of(engine),
        starts_slowly=True,
        shares_prefixes=options.enable_prefix_caching is not False,
        sampling=_sampling(options),
        media=media,
        audio_rate=audio_rate_of(engine) if "audio" in media else 0,
        about=f"vLLM: {short_name(engine.model)}",
    )
    return limits if engine.is_asked_for_texts else told_of_numbers(limits, engine, config)


def _sampling(options: VllmOptions) -> tuple[str, ...]:
    lora = ("lora",) if options.loras else ()
    return (*_SAMPLING, *lora, *(("tools",) if options.tool_call_parser else ()))


def open(engine: EngineConfig) -> Vllm | VllmNumbers:
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
    sockets = own_sockets()
    if options.cpu_kv_gib:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(options.cpu_kv_gib)
    tokenizer: Any = open_tokenizer(engine)
    if tokenizer is None and not is_pooled(engine):
        reason = "the model brings no tokenizer.json; set `engine.tokenizer`"
        raise errors.ConfigError(reason=reason)
    vllm = _library()
    opened = _opened(engine, options)
    limits = _limits(declared, opened.vllm_config, vllm.__version__)
    vocabulary = opened.model_config.get_vocab_size()
    if not engine.is_asked_for_texts:
        sort = sort_of(engine, tokenizer)
        port = NumbersPort(opened, sort)
        limits = limits_of_numbers(limits, engine, opened.model_config)
        return VllmNumbers(port, sort, limits=limits, vocabulary=vocabulary, sockets=sockets)
    return Vllm(
        Port(opened, loras=_lora_requests(options), is_direct=options.front_end == "direct"),
        limits=limits,
        vocabulary=vocabulary,
        texts=tokenizer.answer_texts(),
        reader=open_reader(opened, options.reasoning_parser, options.tool_call_parser),
        sockets=sockets,
    )


def _library() -> Any:
    """The library, of a version that this adapter was written for. Raises: as `options.library`."""
    return library("vllm", "vLLM", OLDEST, NEWEST, extra="vllm")


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

    named = with_runner(engine_arguments(engine, options), engine)
    unknown = sorted(set(named) - set(EngineArgs.__dataclass_fields__))
    if unknown:
        reason = f"the vLLM installed has no engine argument `{unknown[0]}`; leave `engine.{unknown[0]}` out"
        raise errors.ConfigError(reason=reason)
    if options.loras and current_platform.is_cpu():
        # Up to 0.32 a row without adapter that shares a step with others gets the last slot's: it stays empty.
        named["max_loras"] = len(options.loras) + 1
    if current_platform.is_cpu() and len(os.sched_getaffinity(0)) <= _FEW_CORES:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    # The context decides the defaults of seats and step tokens: this one is for batches.
    context = UsageContext.LLM_CLASS
    try:
        config = EngineArgs(**named).create_engine_config(context)
        graphs = graphs_for_seats(named, config)
        if graphs:
            config = EngineArgs(**named, **graphs).create_engine_config(context)
    except _FAILURES as error:
        words = " ".join(str(error).split())[:MOST_WORDS]
        reason = f"vLLM does not take the settings of `[engine]`: {words}"
        raise errors.ConfigError(reason=reason) from error
    try:
        return LLMEngine.from_vllm_config(config, usage_context=context)
    except _FAILURES as error:
        raise errors.EngineDied(
            reason=f"vLLM cannot start its engine: {root_cause() or error}"
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
