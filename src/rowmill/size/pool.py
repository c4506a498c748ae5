"""Shape, GPU, settings -> the KV cache that is left, and how long a step takes on the GPU and beside it.

Promises: the pool is within 5% of what vLLM tells at its start (tests/size hold its own lines).
Knows nothing of: how an engine is told.
Source: the memory budget of vLLM 0.33 as its source has it. Checked with vLLM 0.25.1 on an H200, Qwen2.5-7B:
2,096,192 tokens with 1,024 seats and 16,384 tokens a step, 2,116,976 with 128 and 2,048, 2,209,088 with fp8 weights.
"""

from __future__ import annotations

import msgspec

from rowmill.size.gpus import Gpu
from rowmill.size.shape import ModelShape

FIXED_BYTES = 1_300_000_000
"""Context, libraries, CUDA graphs: what is gone whatever the model, on a large GPU."""
STEP_FLOOR_S = 0.002
"""Processor time of a step whatever is in it."""
SEAT_S = 9e-6
"""Processor time that each row in a step adds: 11 ms at 1,024 rows, measured with vLLM 0.25.1 on an H200."""


class Budget(msgspec.Struct, frozen=True):
    """What an engine is told that decides its memory."""

    memory_share: float
    seats: int
    step_tokens: int
    """`max_num_batched_tokens`."""
    dtype: str = ""
    quantization: str = ""
    kv_dtype: str = ""
    tensor_parallel: int = 1


def pool_bytes(shape: ModelShape, gpu: Gpu, budget: Budget, *, replicas: int = 1) -> int:
    """KV cache of one replica on each of its GPUs; negative where the model does not fit."""
    parallel = budget.tensor_parallel
    weights = shape.weight_bytes(dtype=budget.dtype, quantization=budget.quantization)
    fixed = weights // parallel + activation_bytes(shape, budget) + FIXED_BYTES
    return int(budget.memory_share * gpu.memory_bytes) // replicas - fixed


def pool_tokens(
    shape: ModelShape, gpu: Gpu, budget: Budget, *, replicas: int = 1, row_tokens: int = 0
) -> int:
    """Tokens that the KV cache of one replica holds; 0 where the model does not fit.

    Args:
        row_tokens: of a usual row: of models with windows, longer rows take less a token.
    """
    a_token = token_bytes(shape, budget, row_tokens=row_tokens)
    return max(0, pool_bytes(shape, gpu, budget, replicas=replicas) // a_token)


def token_bytes(shape: ModelShape, budget: Budget, *, row_tokens: int = 0) -> int:
    """KV cache that a token takes on each GPU of an engine; those of tensor parallel share its heads."""
    a_token = shape.kv_bytes(kv_dtype=budget.kv_dtype, dtype=budget.dtype, tokens=row_tokens)
    if not shape.latent:
        a_token //= min(budget.tensor_parallel, shape.kv_heads)
    return max(a_token, 1)


def activation_bytes(shape: ModelShape, budget: Budget) -> int:
    """The most that a step holds at once: a layer's intermediate values, or all rows' scores of the vocabulary."""
    wide = 2 * shape.intermediate // budget.tensor_parallel + 2 * shape.hidden
    layer = budget.step_tokens * wide * 2
    scores = budget.seats * shape.vocabulary * 4 * 2
    return max(layer, scores)


def step_times(
    shape: ModelShape, gpu: Gpu, *, rows: int, context: float
) -> tuple[float, float] | None:
    """Seconds of a decode step with so many rows of so many tokens: on the GPU, and of one processor beside it.

    None where the GPU's rates are not known.
    """
    if not (gpu.flops and gpu.bandwidth):
        return None
    computed = 2 * (shape.active_params + shape.vocabulary * shape.hidden) * rows / gpu.flops
    weights = shape.weight_bytes() / gpu.bandwidth
    cache = rows * context * shape.kv_bytes() / gpu.bandwidth
    return max(computed, weights) + cache, STEP_FLOOR_S + SEAT_S * rows
