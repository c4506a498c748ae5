"""How long answers get, before there are any: exact where a job fixes it, else a range.

Promises: never more than a row may answer; exact where `ignore_eos` or `choices` say.
Knows nothing of: texts of answers. Output lengths that a run has learnt take the place of this.
"""

from __future__ import annotations

import msgspec
import numpy as np

from rowmill.forecast.blocks import Counts
from rowmill.rows import Prompts, Sampling

UNLIMITED_LOW, UNLIMITED_TOKENS = 32, 256
"""Taken for rows that nothing but the context limits."""
LOW, USUAL = 0.1, 0.5
"""Parts of `max_tokens` that answers take at the least and usually, where they end by themselves."""
SHORT_TOKENS = 16
"""Answers of so few tokens are taken to be as long as they may be."""


class Answers(msgspec.Struct):
    """Tokens of each row's answer: at the least, as expected, at the most."""

    low: Counts
    expected: Counts
    high: Counts


def answers_of(prompts: Prompts) -> Answers:
    """What the rows of a batch may answer."""
    of = np.array(prompts.sampling_of, np.int64)
    most = np.array(prompts.max_tokens, np.int64)
    most[most == 0] = UNLIMITED_TOKENS
    is_free = np.array([s.max_tokens is None for s in prompts.samplings] or [True])[of]
    fixed = [_fixed(sampling) for sampling in prompts.samplings]
    caps = np.array([cap for cap, _ in fixed] or [0], np.int64)[of]
    exact = np.array([is_exact for _, is_exact in fixed] or [False])[of]
    many = np.array([sampling.n for sampling in prompts.samplings] or [1], np.int64)[of]
    most = np.where(caps > 0, np.minimum(most, caps), most)
    exact = exact | (most <= SHORT_TOKENS)

    def part(share: float, free: int) -> Counts:
        some = np.maximum(1, np.rint(most * share)).astype(np.int64)
        some = np.where(is_free, np.minimum(most, free), some)
        found: Counts = many * np.where(exact, most, some)
        return found

    return Answers(part(LOW, UNLIMITED_LOW), part(USUAL, UNLIMITED_TOKENS), many * most)


def _fixed(sampling: Sampling) -> tuple[int, bool]:
    """(most tokens that the settings allow, 0 for no limit of theirs; whether answers are as long)."""
    if sampling.choices:
        # A word is a token or two, and one ends it.
        return max(len(choice) for choice in sampling.choices) // 4 + 2, True
    return 0, bool(sampling.ignore_eos)
