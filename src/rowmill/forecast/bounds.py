"""Lengths, what is shared, a model on a GPU -> what no schedule can beat, and what a serial engine can reach.

Promises: each bound is computed from all rows, in a formula that can be checked by hand.
Knows nothing of: orders, schedulers.
Source: BlendServe (arXiv 2411.16102) and NanoFlow (arXiv 2408.12757) for products and cache reads; unique tokens of a
trie: SGLang (arXiv 2312.07104), on whole blocks of 16, as vLLM finds them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from rowmill.forecast.blocks import BLOCK, Counts, num_blocks
from rowmill.size.steps import BANDWIDTH_SHARE, StepModel


class Totals(msgspec.Struct):
    """Sums over all rows, taken window by window."""

    rows: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    blocks: int = 0
    """Whole blocks of prompts that might be found in a cache."""
    answer_reads: float = 0.0
    """Tokens of KV cache that answers read: p x o + o^2 / 2 over all rows."""
    prompt_pairs: float = 0.0
    longest_answer: int = 0
    longest_row: int = 0

    def add(self, prompts: Counts, answers: Counts) -> None:
        """Count rows in."""
        if not len(prompts):
            return
        p, o = prompts.astype(np.float64), answers.astype(np.float64)
        self.rows += len(prompts)
        self.prompt_tokens += int(prompts.sum())
        self.answer_tokens += int(answers.sum())
        self.blocks += int(num_blocks(prompts).sum())
        self.answer_reads += float((p * o + o * o / 2).sum())
        self.prompt_pairs += float((p * p / 2).sum())
        self.longest_answer = max(self.longest_answer, int(answers.max()))
        self.longest_row = max(self.longest_row, int((prompts + answers).max()))


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds on all GPUs of a run."""

    hit_rate: float
    """Share of prompt tokens that any order can find in the cache, with room for all."""
    compute_s: float
    """Products of matrices for what must be computed."""
    cache_read_s: float
    """Reading the KV cache for each token of an answer."""
    steps_s: float
    """Reading the weights in as many steps as the seats allow at least."""
    tail_s: float
    """The longest answer alone."""

    @property
    def ideal_s(self) -> float:
        """Where products hide all reads, and nothing waits."""
        return max(self.compute_s, self.cache_read_s, self.steps_s, self.tail_s)


def bounds_of(
    totals: Totals, distinct_blocks: int, model: StepModel, *, seats: int, groups: int = 1
) -> Bounds:
    """Bounds of a run.

    Args:
        distinct_blocks: different ones among `totals.blocks`.
        seats: of all engines of a group together.
        groups: groups of GPUs that share the rows.
    """
    saved = BLOCK * (totals.blocks - distinct_blocks)
    computed = totals.prompt_tokens - saved + totals.answer_tokens
    steps = max(totals.longest_answer, totals.answer_tokens / max(1, seats * groups))
    alone = model.gpu_s(tokens=1, rows=1, context=totals.longest_row)
    return Bounds(
        hit_rate=saved / totals.prompt_tokens if totals.prompt_tokens else 0.0,
        compute_s=model.product_s(computed, totals.rows + totals.answer_tokens) / groups,
        cache_read_s=model.cache_s(totals.answer_reads) / groups,
        steps_s=steps * model.weights_s,
        tail_s=totals.longest_answer * alone,
    )


def balance_context(model: StepModel) -> float:
    """Tokens of context at which reading the cache takes as long as the products: longer ones make a job wait for memory."""
    a_token = model.product_s(4096, 4096) / 4096
    read = model.shape.kv_bytes(kv_dtype=model.kv_dtype, dtype=model.dtype)
    return a_token * model.gpu.bandwidth * BANDWIDTH_SHARE / max(read, 1)
