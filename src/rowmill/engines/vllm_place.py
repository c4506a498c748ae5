"""How many vLLM engines work side by side, and on which GPUs.

Promises: a replica a group of `tensor x pipeline parallel` GPUs at least; several on one GPU only where the processor
beside it, not the GPU, would be the limit, where they fit, and where nothing pinned speaks against it.
Knows nothing of: vLLM itself.
Source: measured with vLLM 0.25.1: with a 0.5B model four engines on one H200 did 3.5 times the rows of one;
the GPU needed 2 ms of each 11 ms step. Each needs its KV bytes given, for the memory check at
start looks at the whole GPU otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.protocol import Placement, Replica
from rowmill.size import Budget, Gpu, pool_bytes, read_shape
from rowmill.size.gpus import gpus_seen
from rowmill.size.pool import pool_tokens, token_bytes
from rowmill.size.replicas import number_for

MEMORY_SHARE = 0.92
"""vLLM's own default since the memory of CUDA graphs is profiled."""
SEATS, STEP_TOKENS = 1024, 16384
"""vLLM's own defaults of its offline class on GPUs of 70 GiB and more; smaller ones get 256 and 8,192."""
SMALL_SEATS, SMALL_STEP_TOKENS = 256, 8192
LARGE_GPU_BYTES = 70 << 30


def place(engine: EngineConfig) -> Placement:
    """Replicas for the GPUs this process may use; one engine where there are none.

    Raises:
        ConfigError: more GPUs are asked for than there are.
    """
    options = engine.options
    gpus = gpus_seen(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not gpus:
        return Placement([Replica(_without_replicas(engine))])
    width = int(options.get("tensor_parallel_size") or 1) * int(
        options.get("pipeline_parallel_size") or 1
    )
    if width > len(gpus):
        reason = (
            f"tensor x pipeline parallel is {width}, and this process may use {len(gpus)} GPUs;"
            " lower `engine.tensor_parallel_size`"
        )
        raise errors.ConfigError(reason=reason)
    groups = [gpus[i : i + width] for i in range(0, len(gpus) - width + 1, width)]
    numbers, reason = _numbers(engine, groups[0], num_groups=len(groups))
    replicas = [
        Replica(_shared_engine(engine, group[0], number), _sees(group))
        for group, number in zip(groups, numbers, strict=True)
        for _ in range(number)
    ]
    return Placement(replicas, reason=reason)


def pool_of(engine: EngineConfig) -> int:
    """Tokens that the KV caches of all replicas will hold, about; 0 where that is not known."""
    options, gpus, shape = (
        engine.options,
        gpus_seen(os.environ.get("CUDA_VISIBLE_DEVICES")),
        read_shape(engine.model),
    )
    if not gpus or shape is None:
        return 0
    block = int(options.get("block_size") or 16)
    replicas = place(engine).replicas
    number, groups = len(replicas), len({str(one.environment) for one in replicas})
    if options.get("num_gpu_blocks_override"):
        return int(options["num_gpu_blocks_override"]) * block * number
    budget = step_budget(options, gpus[0], engine.seats)
    if options.get("kv_cache_memory_bytes"):
        a_token = token_bytes(shape, budget)
        return int(options["kv_cache_memory_bytes"]) // a_token * groups
    return pool_tokens(shape, gpus[0], budget, replicas=-(-number // groups)) * number


def step_budget(options: Mapping[str, Any], gpu: Gpu, seats: int | None) -> Budget:
    """What vLLM will be told, defaults filled in as vLLM does."""
    is_large = gpu.memory_bytes >= LARGE_GPU_BYTES and "A100" not in gpu.name
    return Budget(
        memory_share=float(options.get("gpu_memory_utilization") or MEMORY_SHARE),
        seats=seats or (SEATS if is_large else SMALL_SEATS),
        step_tokens=int(
            options.get("max_num_batched_tokens")
            or (STEP_TOKENS if is_large else SMALL_STEP_TOKENS)
        ),
        dtype=_named(options, "dtype"),
        quantization=str(options.get("quantization") or ""),
        kv_dtype=_named(options, "kv_cache_dtype"),
        tensor_parallel=int(options.get("tensor_parallel_size") or 1),
    )


def _named(options: Mapping[str, Any], name: str) -> str:
    value = str(options.get(name) or "")
    return "" if value == "auto" else value


def _numbers(
    engine: EngineConfig, group: Sequence[Gpu], *, num_groups: int
) -> tuple[list[int], str]:
    """Replicas on each group of GPUs, and why so many."""
    asked = engine.options.get("replicas", "auto")
    if asked != "auto":
        return spread(max(1, int(asked)), num_groups), f"{asked}: given"
    number, reason = _number_a_group(engine, group, num_groups=num_groups)
    return [number] * num_groups, reason


def spread(number: int, places: int) -> list[int]:
    """`number` over so many places, as evenly as it goes, the first ones first."""
    each, more = divmod(number, places)
    return [each + (i < more) for i in range(places)]


def _number_a_group(
    engine: EngineConfig, group: Sequence[Gpu], *, num_groups: int
) -> tuple[int, str]:
    options = engine.options
    if len(group) > 1:
        return 1, f"one for each {len(group)} GPUs: tensor or pipeline parallel"
    pinned = [name for name in PINS if options.get(name) is not None]
    if pinned:
        return (
            1,
            f"one a GPU: `engine.{pinned[0]}` is for one engine that has the GPU to itself",
        )
    shape = read_shape(engine.model)
    if shape is None:
        return 1, "one a GPU: the model's shape is not known before it is loaded"
    return number_for(
        shape, group[0], step_budget(options, group[0], engine.seats), _cores() / num_groups
    )


PINS = ("num_gpu_blocks_override",)
"""Settings that are made for one engine on a GPU. A share of its memory, or bytes of KV cache, are none: replicas divide
them."""


def _shared_engine(engine: EngineConfig, gpu: Gpu, number: int) -> EngineConfig:
    """The settings of one of `number` replicas of a GPU."""
    alone = _without_replicas(engine)
    shape = read_shape(engine.model)
    if number == 1 or shape is None:
        return alone
    budget = step_budget(engine.options, gpu, engine.seats)
    given = engine.options.get("kv_cache_memory_bytes")
    share = {
        "kv_cache_memory_bytes": int(given) // number
        if given
        else pool_bytes(shape, gpu, budget, replicas=number),
        # Looked at once, at the start: so much must be free then.
        "gpu_memory_utilization": round(0.9 * budget.memory_share / number, 3),
    }
    return EngineConfig.model_validate({**alone.model_dump(), **share})


def _without_replicas(engine: EngineConfig) -> EngineConfig:
    tree = engine.model_dump()
    tree.pop("replicas", None)
    return EngineConfig.model_validate(tree)


def _sees(group: Sequence[Gpu]) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu.index) for gpu in group)}


def _cores() -> int:
    return len(os.sched_getaffinity(0))
