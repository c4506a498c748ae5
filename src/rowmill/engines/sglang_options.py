"""`[engine]` of a job -> the settings SGLang is opened with, or the mistakes in words, without SGLang being imported.

Promises: a setting is ours, or an argument of the `sglang.Engine` that is installed, or a mistake that names its neighbour.
Knows nothing of: SGLang's own checks of values, which come when the engine is opened.
Memory: the names.
Source: SGLang 0.5.12 to 0.5.23, `srt/server_args.py`; from 0.5.20 on its fields stand in `srt/arg_groups/fields/`.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.model_folder import config_of, context_of, folder_mistakes
from rowmill.engines.options import Options, mistakes
from rowmill.engines.weights import pickled_mistakes

EFFORT = frozenset(
    """
    attention_backend chunked_prefill_size cpu_offload_gb cuda_graph_max_bs
    decode_attention_backend disable_cuda_graph disable_overlap_schedule disable_radix_cache
    enable_torch_compile max_prefill_tokens max_running_requests max_total_tokens
    mem_fraction_static num_continuous_decode_steps page_size pp_size
    prefill_attention_backend radix_eviction_policy sampling_backend schedule_conservativeness
    schedule_policy tp_size watchdog_timeout
    """.split()  # noqa: SIM905 - a list of names is read as text
)
"""Settings that change no answer beyond rounding: a run may be resumed with others."""

_SIDE_BY_SIDE = "rowmill runs engines side by side by itself"
_OURS: Mapping[str, str] = {
    "model_path": "set `engine.model`",
    "tokenizer_path": "set `engine.tokenizer`",
    "context_length": "set `engine.max_model_len`",
    "max_running_requests": "set `engine.seats`",
    "skip_tokenizer_init": "stop strings and grammars need the tokenizer",
    "tokenizer_worker_num": "rows come as token ids",
    "allow_auto_truncate": "set `validate.too_long`",
    "stream_interval": "answers come whole",
    "incremental_streaming_output": "answers come whole",
    "is_embedding": "rows are generated",
    "dp_size": _SIDE_BY_SIDE,
    "nnodes": _SIDE_BY_SIDE,
    "node_rank": _SIDE_BY_SIDE,
    "base_gpu_id": _SIDE_BY_SIDE,
    "host": "nothing is served",
    "port": "nothing is served",
    "api_key": "nothing is served",
    "served_model_name": "nothing is served",
    "lora_paths": "adapters of a row are not supported with this engine",
}
"""Arguments that a job may not give -> what it does instead, or why."""
KEPT_TOKENS = 6
"""Of its context SGLang keeps so many for itself: `max_req_input_len` of its `managers/tp_worker.py`."""


class SglangOptions(Options):
    """Settings of engine `sglang`. Every other argument of `sglang.Engine` may stand beside them by its own name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    dtype: str = "auto"
    """Type of weights and activations: `auto` is the model's own, else `bfloat16`, `float16`, `float32`."""
    quantization: str | None = None
    """How weights are quantised, as `fp8`. None: as the model's files are."""
    kv_cache_dtype: str | None = None
    """Type of the KV cache, as `fp8_e5m2`. None: that of the model."""
    load_format: str | None = None
    """How weights are read; `dummy` makes random ones, to measure speed. None: SGLang's choice."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    tp_size: int | None = Field(default=None, gt=0)
    """Tensor parallel: GPUs that each layer is spread over. None: 1."""
    mem_fraction_static: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory for weights and KV cache. None: SGLang's choice."""
    max_total_tokens: int | None = Field(default=None, gt=0)
    """Tokens of KV cache. None: what the memory holds."""
    attention_backend: str | None = None
    """Kernels of attention, as `triton`. None: SGLang's choice."""
    sampling_backend: str | None = None
    """`pytorch` where FlashInfer is not installed. None: SGLang's choice."""
    enable_deterministic_inference: bool = False
    """Draw by the seeds of rows, whatever is computed beside them; slower. Without it SGLang takes a seed and does not use it."""


def option_mistakes(engine: EngineConfig) -> list[str]:
    """What is wrong with the settings of `engine`, a sentence each; empty where all is well."""
    found = mistakes(SglangOptions, engine)
    found += [
        f"`engine.{name}` cannot be set here: {instead}"
        for name, instead in _OURS.items()
        if name in engine.options
    ]
    found += _unknown(engine)
    return [*found, *folder_mistakes(engine), *pickled_mistakes(engine)]


def checked(engine: EngineConfig) -> SglangOptions:
    """The options of `engine`.

    Raises:
        BadJob: With every mistake.
    """
    found = option_mistakes(engine)
    if found:
        raise errors.BadJob(where="engine `sglang`", mistakes=found)
    return SglangOptions.model_validate(engine.options)


def engine_arguments(engine: EngineConfig, options: SglangOptions) -> dict[str, Any]:
    """What `sglang.Engine` is given, by its own names."""
    named = {**options.model_dump(), **(options.model_extra or {})}
    named |= {
        "model_path": _place(engine.model),
        "revision": engine.revision or None,
        "context_length": _context(engine),
        "max_running_requests": engine.seats,
        # Without its token counts nobody knows what the cache found.
        "enable_cache_report": True,
    }
    if engine.tokenizer:
        named["tokenizer_path"] = _folder(engine.tokenizer)
    return {name: value for name, value in named.items() if value is not None}


def _context(engine: EngineConfig) -> int | None:
    """The context to ask for, so that a row of `engine.max_model_len` fits beside what SGLang keeps."""
    if engine.max_model_len is None:
        return None
    return min(engine.max_model_len + KEPT_TOKENS, context_of(config_of(engine)))


def check_arguments(named: Mapping[str, Any]) -> None:
    """See that the SGLang installed has each argument.

    Raises:
        ConfigError: It has not.
    """
    known = arguments()
    unknown = sorted(set(named) - known) if known else []
    if unknown:
        reason = f"the SGLang installed has no argument `{unknown[0]}`; leave `engine.{unknown[0]}` out"
        raise errors.ConfigError(reason=reason)


@lru_cache(maxsize=1)
def arguments() -> frozenset[str]:
    """Arguments of the SGLang that is installed, read from its source: importing it takes half a minute. Empty: none is."""
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        return frozenset()
    package = Path(found.submodule_search_locations[0]) / "srt"
    fields = package / "arg_groups" / "fields"
    if fields.is_dir():
        return frozenset(name for file in fields.glob("*.py") for name in fields_of(file))
    return frozenset(fields_of(package / "server_args.py", of="ServerArgs"))


def fields_of(source: Path, *, of: str = "") -> Iterator[str]:
    """Names that a module's classes, or the one named, declare with a type."""
    try:
        tree = ast.parse(source.read_text("utf-8"))
    except (OSError, SyntaxError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == (of or node.name):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id


def _unknown(engine: EngineConfig) -> Iterator[str]:
    """None where SGLang is not installed: what it takes is known where it is."""
    installed = arguments()
    known = {*EngineConfig.model_fields, *SglangOptions.model_fields, *installed, *_OURS}
    if not installed:
        return
    for name in engine.options:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean `{near[0]}`? " if near else ""
            yield f"unknown setting `engine.{name}`; {hint}engine `sglang` takes every argument of `sglang.Engine`"


def _place(model: str) -> str:
    path = Path(model).expanduser()
    return str(path) if path.exists() else model


def _folder(tokenizer: str) -> str:
    path = Path(tokenizer).expanduser()
    return str(path.parent if path.is_file() else path)
