"""Shape, GPU, lengths of the data -> what an engine has room for, each figure with its reason.

Promises: the least tensor parallel that holds the weights and one row of the longest; nothing is guessed that config.json says.
Knows nothing of: engines' names for settings, rows.
Source: memory as in size/pool.py; seats and tokens a step are vLLM's own defaults for a GPU of this size.
"""

from __future__ import annotations

import msgspec

from rowmill.size.gpus import Gpu
from rowmill.size.pool import Budget, pool_tokens
from rowmill.size.replicas import number_for
from rowmill.size.shape import ModelShape

MOST_PARALLEL = 8


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine is like on its GPUs."""

    gpu: str
    parallel: int
    """GPUs that one engine takes; 0: the model does not fit on eight."""
    replicas: int
    """Engines on one group of so many GPUs."""
    weight_bytes: int
    pool_tokens: int
    """Of each engine."""
    seats: int
    step_tokens: int
    max_model_len: int
    """That the data needs."""
    reasons: dict[str, str]


def fit(
    shape: ModelShape, gpu: Gpu, budget: Budget, *, longest_tokens: int, cores: float
) -> Fit:
    """Fit a model onto GPUs of one kind.

    Args:
        budget: what the engine is told; its `tensor_parallel` is the least that is tried.
        longest_tokens: of prompt and answer together, of the longest row.
        cores: processors beside one group of GPUs.
    """
    parallel = budget.tensor_parallel
    pool = _pool(shape, gpu, budget, parallel, longest_tokens)
    while pool < longest_tokens and parallel < MOST_PARALLEL:
        parallel *= 2
        pool = _pool(shape, gpu, budget, parallel, longest_tokens)
    does_fit = pool >= longest_tokens
    replicas, why = 1, ""
    if does_fit and parallel == 1:
        replicas, why = number_for(shape, gpu, budget, cores)
        pool = pool_tokens(shape, gpu, budget, replicas=replicas, row_tokens=longest_tokens)
    weights = shape.weight_bytes(dtype=budget.dtype, quantization=budget.quantization)
    a_token = shape.kv_bytes(kv_dtype=budget.kv_dtype, dtype=budget.dtype)
    return Fit(
        gpu=gpu.name,
        parallel=parallel if does_fit else 0,
        replicas=replicas,
        weight_bytes=weights,
        pool_tokens=pool,
        seats=budget.seats,
        step_tokens=budget.step_tokens,
        max_model_len=longest_tokens,
        reasons=_reasons(shape, gpu, budget, parallel, weights, a_token, pool, longest_tokens)
        | ({"replicas": why} if why else {}),
    )


def _pool(shape: ModelShape, gpu: Gpu, budget: Budget, parallel: int, row_tokens: int) -> int:
    wider = msgspec.structs.replace(budget, tensor_parallel=parallel)
    return pool_tokens(shape, gpu, wider, row_tokens=row_tokens)


def _reasons(
    shape: ModelShape,
    gpu: Gpu,
    budget: Budget,
    parallel: int,
    weights: int,
    a_token: int,
    pool: int,
    longest: int,
) -> dict[str, str]:
    cache = (
        f"{shape.layers} layers x {shape.latent} latent values"
        if shape.latent
        else f"2 x {shape.layers} layers x {shape.kv_heads} KV heads x {shape.head_size} values"
    )
    share = f"{budget.memory_share:.0%} of {gpu.memory_bytes / 2**30:.0f} GiB"
    if shape.window_layers:
        cache += f"; {shape.window_layers} of the layers keep {shape.window:,} tokens at most"
    if shape.stateful_layers:
        cache += f"; {shape.stateful_layers} of the layers keep a state of fixed size"
    found = {
        "weights": f"{weights / 1e9:.1f} GB: {shape.params / 1e9:.2f} billion parameters",
        "kv cache": f"{a_token:,} bytes a token ({cache}); {pool:,} tokens of it in {share} beside the weights",
        "max_model_len": f"{longest:,} are enough: the longest row, prompt and answer",
        "seats": f"{budget.seats:,}: usual for a GPU of this size",
        "step tokens": f"{budget.step_tokens:,}: usual for a GPU of this size",
    }
    if parallel > budget.tensor_parallel:
        found["tensor parallel"] = f"{parallel}: fewer GPUs do not hold the weights and one row"
    return found
