"""Seats -> the sizes of step that vLLM records as CUDA graphs, so that a step of all seats is one of them.

Promises: what vLLM would record by itself stays; nothing is said where a user says anything of graphs, nor of models that do
not generate, or that keep a state a row, for which vLLM takes memory by the largest graph before it looks for any.
Knows nothing of: how an engine is opened.
Source: vLLM 0.25.1 and 0.32.0, `VllmConfig._set_cudagraph_sizes`: 512 tokens is the largest step recorded, whatever the seats
(1,024 on a B200); more are started kernel by kernel. One H200, 7B shape, fp8, steps that decode alone: 12.7 ms for
256 to 512 rows, 24 to 47 ms for 513 to 1,024, all of it one processor at work (benchmarks/RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

STRIDE_ROWS = 32
"""Between sizes that are added: a step is padded by 3% at most, and 1,024 seats cost 16 more of them."""
MOST_ROWS = 2048
"""Each size takes a part of a second at the start."""
_SAID = {
    "compilation_config",
    "cudagraph_capture_sizes",
    "enforce_eager",
    "max_cudagraph_capture_size",
    "optimization_level",
    "performance_mode",
    "speculative_config",
}


def graphs_for_seats(named: Mapping[str, Any], config: Any) -> dict[str, Any]:
    """Engine arguments to add to `named`, which made `config`; none where its graphs are large enough, or none are used."""
    sizes, model = config.compilation_config.cudagraph_capture_sizes, config.model_config
    if not sizes or any(named.get(name) for name in _SAID):
        return {}
    if model.runner_type != "generate" or model.has_inner_state:
        return {}
    seats = config.scheduler_config.max_num_seqs
    # A step of nothing but answers has as many tokens as rows.
    most = min(seats, config.scheduler_config.max_num_batched_tokens, MOST_ROWS)
    more = sizes_up_to(most, sizes)
    return {"cudagraph_capture_sizes": [*sizes, *more]} if more else {}


def sizes_up_to(most: int, sizes: Sequence[int]) -> list[int]:
    """Sizes above those there are, `most` the last of them."""
    largest = max(sizes)
    return [*range(largest + STRIDE_ROWS, most, STRIDE_ROWS), most] if most > largest else []
