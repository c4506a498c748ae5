"""A row that an engine had, and what it said -> the row's Outcome; the same for engines that are asked by token ids.

Promises: greedy samples are equal, and asked once: the others are copies of the first, in the choices and in the counts.
Knows nothing of: engines.
Memory: none kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from rowmill import errors
from rowmill.rows import Choice, Ids, Outcome, Sampling


class Asked(Protocol):
    """A row while an engine has it."""

    key: int
    ids: Ids
    max_tokens: int
    sampling: Sampling
    began: float


def choice_of(
    index: int,
    text: str,
    finish_reason: str,
    sampling: Sampling,
    *,
    ids: list[int],
    logprobs: list[dict[str, object]] | None,
) -> Choice:
    """One sample. One of the `choices` is whole, whatever cut it."""
    is_whole = bool(sampling.choices) and text in sampling.choices
    return Choice(
        index=index,
        text=text,
        finish_reason="stop" if is_whole else finish_reason,
        token_ids=ids if sampling.return_token_ids else None,
        logprobs=logprobs,
    )


def answered(
    row: Asked,
    choices: Sequence[Choice],
    *,
    output_tokens: int,
    prompt_tokens: int = 0,
    cached_tokens: int = 0,
    attempts: int = 1,
) -> Outcome:
    """The outcome of a row with its samples.

    Args:
        choices: those that were made, the first of them before the others.
        output_tokens: of these.
        prompt_tokens: where the engine has more than the row's ids; 0: it has these.
    """
    sampling = row.sampling
    every = [
        *choices,
        *(
            msgspec.structs.replace(choices[0], index=index)
            for index in range(len(choices), sampling.n)
        ),
    ]
    has_more = sampling.n > 1 or sampling.return_token_ids or sampling.logprobs is not None
    return Outcome(
        key=row.key,
        status="ok",
        text=every[0].text,
        finish_reason=every[0].finish_reason,
        choices=every if has_more else [],
        prompt_tokens=prompt_tokens or len(row.ids),
        cached_tokens=cached_tokens,
        output_tokens=output_tokens * len(every) // len(choices),
        max_tokens=row.max_tokens,
        attempts=attempts,
        seconds=round(time.monotonic() - row.began, 6),
    )


def failed(row: Asked, error: errors.RowError, *, attempts: int = 1) -> Outcome:
    """The outcome of a row that gets no answer."""
    return Outcome(
        key=row.key,
        status="error",
        prompt_tokens=len(row.ids),
        max_tokens=row.max_tokens,
        attempts=attempts,
        seconds=round(time.monotonic() - row.began, 6),
        error_kind=error.kind,
        error=str(error),
    )
