"""What vLLM can do with less memory: fewer seats, smaller steps, a smaller share, nothing compiled - in this order.

Promises: each is an effort setting: answers stay what they are but for rounding.
Fewer seats and smaller steps lower what a step needs beside weights and cache; a smaller share leaves more room
outside the cache; without CUDA graphs their memory is free as well.
Knows nothing of: vLLM itself, when a step is due.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowmill.config import EngineConfig
from rowmill.engines.vllm_place import MEMORY_SHARE, SMALL_STEP_TOKENS
from rowmill.rows import Limits

_LEAST_SEATS, _LEAST_STEP_TOKENS = 1, 512
_LESS = 0.9


def ladder(engine: EngineConfig, limits: Limits | None) -> Iterator[tuple[str, Any, Any]]:
    """(setting, value now, lower value) in the order in which they are taken."""
    options = engine.options
    seats = engine.seats or (limits.seats if limits else 0)
    if seats:
        yield "seats", seats, max(_LEAST_SEATS, seats // 2)
    tokens = int(options.get("max_num_batched_tokens") or 0) or (limits and limits.step_tokens)
    tokens = tokens or SMALL_STEP_TOKENS
    # vLLM takes no step that is smaller than its seats.
    least = max(_LEAST_STEP_TOKENS, seats // 2)
    yield "max_num_batched_tokens", tokens, max(min(tokens, least), tokens // 2)
    for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override", "cpu_kv_gib"):
        if options.get(name):
            given = int(options[name])
            yield name, given, max(1, int(given * _LESS))
            break
    else:
        share = float(options.get("gpu_memory_utilization") or MEMORY_SHARE)
        yield "gpu_memory_utilization", share, round(share * _LESS, 3)
    yield "enforce_eager", bool(options.get("enforce_eager")), True
