"""What engines that take token ids ask of a row before they begin it: is it a prompt, how long may the answer be.

Promises: a choice is never cut by `max_tokens`; prompt and answer fit the context.
Knows nothing of: engines.
Memory: none kept.
"""

from __future__ import annotations

import xxhash

from rowmill import errors
from rowmill.rows import Ids, Sampling

_SEED_MASK = 2**63 - 1


def row_seed(key: int, seed: int | None) -> int:
    """The seed of a row of its own: a function of its place in the input and the job's seed."""
    return (
        xxhash.xxh3_64_intdigest(key.to_bytes(8, "little"), (seed or 0) & 2**64 - 1)
        & _SEED_MASK
    )


def room_for(sampling: Sampling, *, max_tokens: int, prompt_tokens: int, limit: int) -> int:
    """Most tokens to generate: all that is left where none is set, enough for the longest of `choices`."""
    left = max(1, limit - prompt_tokens)
    if sampling.choices:
        # A token holds a byte at least, and one more ends the answer: the grammar stops it earlier.
        return min(left, max(len(choice.encode()) for choice in sampling.choices) + 1)
    return min(left, max_tokens) if max_tokens else left


def check_prompt(
    ids: Ids, *, asked: int = 0, limit: int, vocabulary: int, answers: bool = True
) -> None:
    """See that a prompt is one that a model can compute: a wrong one can end its engine.

    Args:
        ids: of the prompt.
        asked: tokens of the answer, for people.
        limit: tokens of prompt and answer.
        vocabulary: ids there are.
        answers: there must be room for a token more; not so where numbers come out.

    Raises:
        RowError: It is not.
    """
    if len(ids) + int(answers) > limit:
        raise errors.TooLong(prompt_tokens=len(ids), asked_tokens=asked, limit_tokens=limit)
    if not len(ids):
        reason = "the prompt has no tokens, expected at least one"
        raise errors.InvalidRow(reason=reason)
    if ids.max() >= vocabulary:
        reason = (
            f"token id {ids.max()}, expected ids below {vocabulary}, the model's vocabulary"
        )
        raise errors.InvalidRow(reason=reason)
