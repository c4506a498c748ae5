"""Shape, GPU, processors -> how many engines of one model pay side by side on one GPU, and why so many.

Promises: more than one only where the processor beside the GPU, not the GPU, would be the limit, and where they fit.
Knows nothing of: how engines are told.
Source: measured with vLLM 0.25.1: with a 0.5B model four engines on one H200 did 3.5 times the rows of one;
the GPU needed 2 ms of each 11 ms step.
"""

from __future__ import annotations

from rowmill.size.gpus import Gpu
from rowmill.size.pool import Budget, pool_bytes, step_times
from rowmill.size.shape import ModelShape

CORES_A_REPLICA = 2.5
"""One for the scheduler, one for the front end, and some of both for tokenising."""
MIN_POOL_ROWS = 64
"""A replica whose KV cache holds fewer rows than this is not worth its weights."""
TYPICAL_TOKENS = 300


def number_for(shape: ModelShape, gpu: Gpu, budget: Budget, cores: float) -> tuple[int, str]:
    """Replicas of one model on one GPU, and why so many."""
    times = step_times(shape, gpu, rows=budget.seats, context=TYPICAL_TOKENS)
    if times is None:
        return 1, f"one a GPU: the rates of `{gpu.name}` are not known"
    on_gpu, beside = times
    told = f"a step of {budget.seats:,} rows takes {on_gpu * 1e3:.1f} ms on the GPU, {beside * 1e3:.1f} ms beside it"
    wanted = round(beside / on_gpu)
    if wanted <= 1:
        return 1, f"one a GPU: {told}"
    by_cores = max(1, int(cores / CORES_A_REPLICA))
    number = min(wanted, by_cores)
    needed = MIN_POOL_ROWS * TYPICAL_TOKENS * shape.kv_bytes(kv_dtype=budget.kv_dtype)
    while number > 1 and pool_bytes(shape, gpu, budget, replicas=number) < needed:
        number -= 1
    limit = f", and {cores:.0f} cores feed {by_cores}" if by_cores < wanted else ""
    return number, f"{number} a GPU: {told}{limit}"
