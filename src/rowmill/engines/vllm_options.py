"""`[engine]` of a job -> the settings vLLM is opened with, or the mistakes in words, without vLLM at hand.

Promises: a setting is ours, or an engine argument of a vLLM this adapter knows, or a mistake that names its neighbour;
what rowmill sets by itself cannot be set beside it.
Knows nothing of: vLLM's own checks of values, which come when the engine is opened.
Memory: the names.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.model_folder import folder_mistakes
from rowmill.engines.options import Options, mistakes
from rowmill.engines.vllm_arguments import ARGUMENTS
from rowmill.engines.vllm_reader import parser_mistake
from rowmill.engines.weights import NOT_PICKLED, pickled_mistakes
from rowmill.tokens.hub import is_hub_name

EFFORT = frozenset(
    """
    async_scheduling attention_backend block_size compilation_config cpu_kv_gib cpu_offload_gb
    cudagraph_capture_sizes device_ids disable_cascade_attn disable_custom_all_reduce
    distributed_executor_backend download_dir enable_chunked_prefill enable_expert_parallel
    enable_flashinfer_autotune enable_prefix_caching enforce_eager front_end
    fully_sharded_loras gpu_memory_utilization kv_cache_memory_bytes kv_offloading_backend
    kv_offloading_size long_prefill_token_threshold max_cpu_loras max_cudagraph_capture_size
    max_logprobs max_lora_rank max_loras max_num_batched_tokens max_num_scheduled_tokens
    max_parallel_loading_workers num_gpu_blocks_override numa_bind numa_bind_cpus
    numa_bind_nodes optimization_level performance_mode pipeline_parallel_size replicas
    safetensors_load_strategy scheduler_reserve_full_isl shutdown_timeout speculative_config
    tensor_parallel_size use_tqdm_on_load watermark
    """.split()  # noqa: SIM905 - a list of names is read as text
)
"""Settings that change no answer beyond rounding: a run may be resumed with others. All others are identity:
`load_format` too, as `dummy` is one. Speculative decoding draws from the same distribution, so it is effort."""

_OURS: Mapping[str, str] = {
    "max_num_seqs": "set `engine.seats`",
    "enable_lora": "set `engine.loras`",
    "default_mm_loras": "set `engine.loras`",
    "hf_token": "set the environment variable `HF_TOKEN`: settings are written into the run",
    "data_parallel_size": "rowmill runs engines side by side by itself",
    "data_parallel_rank": "rowmill runs engines side by side by itself",
    "data_parallel_backend": "rowmill runs engines side by side by itself",
    "data_parallel_size_local": "rowmill runs engines side by side by itself",
    "model_weights": "set `engine.model`",
    "served_model_name": "nothing is served",
    "skip_tokenizer_init": "stop strings and grammars need the tokenizer",
    "disable_log_stats": "counters of the run come out of them",
    "stream_interval": "answers come whole",
    "runner": "rows are generated",
    "convert": "rows are generated",
    "max_num_queued_reqs": "rowmill feeds the engine by its seats",
    "max_num_queued_tokens": "rowmill feeds the engine by its seats",
}
"""Engine arguments that a job may not give -> what it does instead, or why."""


class VllmOptions(Options):
    """Settings of engine `vllm`. Every other argument of `vllm.EngineArgs` may stand beside them by its own name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    dtype: str = "auto"
    """Type of weights and activations: `auto` is the model's own, else `bfloat16`, `float16`, `float32`."""
    quantization: str | None = None
    """How weights are quantised, as `fp8`: 1.2 to 1.3 times as fast on one H200. None: as the model's files are."""
    kv_cache_dtype: str | None = None
    """Type of the KV cache, as `fp8`: twice the tokens. None: that of the model."""
    load_format: str | None = None
    """How weights are read; `dummy` makes random ones, to measure speed. None: vLLM's choice."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    tensor_parallel_size: int | None = Field(default=None, gt=0)
    """GPUs that each layer is spread over. None: 1."""
    pipeline_parallel_size: int | None = Field(default=None, gt=0)
    """Groups of GPUs that the layers are spread over. None: 1."""
    replicas: int | Literal["auto"] = "auto"
    """Engines side by side, over all GPUs. `auto`: one a GPU, more where the processor beside it would be the limit."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory that is taken, what others hold included. None: vLLM's default."""
    kv_cache_memory_bytes: int | None = Field(default=None, gt=0)
    """Bytes of KV cache, in place of what is left of the share: for several engines on one GPU."""
    num_gpu_blocks_override: int | None = Field(default=None, gt=0)
    """Blocks of KV cache, in place of what is measured."""
    cpu_kv_gib: int | None = Field(default=None, gt=0)
    """GiB of KV cache on a CPU (`VLLM_CPU_KVCACHE_SPACE`). None: that variable, or vLLM's default."""
    max_num_batched_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of a step. None: what `vllm.LLM` takes on this hardware, 16,384 on GPUs of 70 GiB."""
    enforce_eager: bool | None = None
    """Compile nothing: starts a minute sooner, runs slower."""
    enable_prefix_caching: bool | None = None
    """Compute a shared beginning once. None: on."""
    speculative_config: dict[str, Any] | None = None
    """Speculative decoding, as vLLM has it. It changes which draw is made, not its distribution."""
    reasoning_parser: str | None = None
    """Parser of vLLM's that tells reasoning from answers, as `qwen3` or `deepseek_r1`; answers that must follow a schema
    follow it behind their reasoning."""
    tool_call_parser: str | None = None
    """Parser of vLLM's that reads tool calls out of answers of rows with `tools`, as `hermes`. None: they stay in the text."""
    loras: dict[str, str] = Field(default_factory=dict)
    """Adapters: name -> folder. `sampling.lora`, or a row's own `lora`, says which one answers."""
    max_loras: int | None = Field(default=None, gt=0)
    """Adapters in one step. None: all of `loras`, 8 at most."""
    max_lora_rank: int | None = Field(default=None, gt=0)
    """Highest rank of an adapter. None: what the adapters' files say."""
    front_end: Literal["direct", "public"] = "direct"
    """`direct`: plain rows pass by vLLM's own front end, a quarter of the processor time. `public`: none does."""


def option_mistakes(engine: EngineConfig) -> list[str]:
    """What is wrong with the settings of `engine`, a sentence each; empty where all is well."""
    found = mistakes(VllmOptions, engine)
    found += [_unknown(name) for name in engine.options if _is_unknown(name)]
    found += [
        f"`engine.{name}` cannot be set here: {instead}"
        for name, instead in _OURS.items()
        if name in engine.options
    ]
    found += folder_mistakes(engine)
    found += pickled_mistakes(engine)
    for setting in ("reasoning_parser", "tool_call_parser"):
        name = engine.options.get(setting)
        mistake = parser_mistake(setting, name) if isinstance(name, str) else ""
        found += [mistake] if mistake else []
    if not found:
        found += _lora_mistakes(VllmOptions.model_validate(engine.options).loras)
    return found


def checked(engine: EngineConfig) -> VllmOptions:
    """The options of `engine`.

    Raises:
        BadJob: With every mistake.
    """
    found = option_mistakes(engine)
    if found:
        raise errors.BadJob(where="engine `vllm`", mistakes=found)
    return VllmOptions.model_validate(engine.options)


def engine_arguments(engine: EngineConfig, options: VllmOptions) -> dict[str, Any]:
    """What `vllm.EngineArgs` is given, by its own names."""
    own = {"loras", "front_end", "cpu_kv_gib", "replicas", "tool_call_parser"}
    named = {
        name: value
        for name, value in {**options.model_dump(), **(options.model_extra or {})}.items()
        if name not in own and value is not None
    }
    common = {
        "model": _place(engine.model),
        "revision": engine.revision or None,
        "tokenizer": _tokenizer_folder(engine.tokenizer),
        "max_model_len": engine.max_model_len,
        "max_num_seqs": engine.seats,
    }
    named |= {name: value for name, value in common.items() if value is not None}
    if named.get("load_format") is None and is_hub_name(engine.model):
        # Of a model on the hub: what could run code is not even fetched.
        named.setdefault("ignore_patterns", list(NOT_PICKLED))
    if options.loras:
        named["enable_lora"] = True
        named.setdefault("max_loras", min(8, len(options.loras)))
        named.setdefault("max_lora_rank", max(map(_rank, options.loras.values())))
    return named


def _is_unknown(name: str) -> bool:
    return name not in VllmOptions.model_fields and name not in ARGUMENTS


def _unknown(name: str) -> str:
    known = {*EngineConfig.model_fields, *VllmOptions.model_fields, *ARGUMENTS}
    near = difflib.get_close_matches(name, sorted(known), n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    own = ", ".join(f"`{key}`" for key in sorted(VllmOptions.model_fields))
    return (
        f"unknown setting `engine.{name}`; {hint}engine `vllm` takes {own},"
        " and every argument of `vllm.EngineArgs`"
    )


def _lora_mistakes(loras: Mapping[str, str]) -> Iterator[str]:
    for name, folder in loras.items():
        if not (Path(folder).expanduser() / "adapter_config.json").is_file():
            yield f"`engine.loras.{name}`: `{folder}` holds no adapter_config.json; give an adapter's folder"


def _rank(folder: str) -> int:
    """Rank of an adapter, as one that vLLM takes."""
    text = (Path(folder).expanduser() / "adapter_config.json").read_text("utf-8")
    rank = int(json.loads(text).get("r") or 16)
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), rank)


def _place(model: str) -> str:
    path = Path(model).expanduser()
    return str(path) if path.exists() else model


def _tokenizer_folder(tokenizer: str) -> str | None:
    path = Path(tokenizer).expanduser()
    if not tokenizer:
        return None
    return str(path.parent if path.is_file() else path)
