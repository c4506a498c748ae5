"""Prompts -> the log-probability of each label as the whole answer, by llama.cpp in this process.

llama.cpp tells the log-probabilities of the likeliest tokens, and always that of the token that it draws: both of the
model's own numbers, before any bias. So a token is made sure to be drawn by a bias that nothing outweighs, and
told of. A prompt is computed once; what is asked behind it finds it in the seat's cache.

Promises: the sum over a label's tokens, its end's included, of the model's log-probabilities; a token that is told of
among the likeliest is not asked for again.
Knows nothing of: what the numbers become, see verdicts.py; seats, see llamacpp.py.
Memory: none kept.
Source: xllamacpp 2026.10.11549, tried: with `logit_bias` a token's `logprob` is that of the full list of the vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines.llamacpp_ask import failure_of
from rowmill.engines.llamacpp_seats import SeatedRow
from rowmill.rows import Ids, Outcome
from rowmill.tokens.labels import Labels, Path

Ask = Callable[[dict[str, Any]], dict[str, Any]]

_LIKELIEST = 20
"""Told of with each request: few labels need a request of their own behind a prompt that asks for one of them."""
_OTHERS = 256
"""First tokens of a vocabulary: controls, bytes, letters."""
_NOTHING = "llama.cpp told no log-probabilities"
_SURE = 10_000.0
"""A bias; logits are of the order of 10."""
_LEAST_LOGPROB = math.log(1e-38)
"""Below, a float32 is no probability any more: llama.cpp gives its lowest number."""


class Weighing(msgspec.Struct):
    """What was told of one row so far."""

    told: dict[Path, dict[int, float]]
    cached_tokens: int | None = None
    """Of the prompt, when it was computed first."""


def weighed(row: SeatedRow, labels: Labels, ask: Ask, *, vocabulary: int) -> Weighing:
    """The log-probability of each token of the labels behind its beginning.

    Args:
        ask: Has a request answered.
        vocabulary: Number of the model's tokens.

    Raises:
        RowError: The row is wrong.
        Disconnected: llama.cpp failed.
    """
    found = Weighing({})
    for path, next_ in labels.nodes().items():
        seen: dict[int, float] = {}
        for token in next_:
            if token in seen:
                continue
            result = ask(_request(row.ids, path, token))
            seen |= _read(result)
            if found.cached_tokens is None:
                cached = result["usage"].get("prompt_tokens_details") or {}
                found.cached_tokens = int(cached.get("cached_tokens", 0))
            if token not in seen:
                seen |= _whole(row.ids, path, labels, ask, vocabulary)
        found.told[path] = {token: seen[token] for token in next_}
    return found


def _whole(ids: Ids, path: Path, labels: Labels, ask: Ask, vocabulary: int) -> dict[int, float]:
    """The whole vocabulary, told of beside a token that is one: bytes that are not yet a character have nothing told.

    Raises:
        Disconnected: llama.cpp tells nothing beside any.
    """
    for token in dict.fromkeys([*(label[-1] for label in labels.ids), *range(_OTHERS)]):
        found = _read(ask(_request(ids, path, token, told=vocabulary)))
        if found:
            return found
    raise errors.Disconnected(reason=_NOTHING)


def answered(
    row: SeatedRow, labels: Labels, found: Weighing, attempts: int, began: float
) -> Outcome:
    """The outcome of a row whose labels are weighed."""
    return Outcome(
        key=row.key,
        status="ok",
        prompt_tokens=len(row.ids),
        cached_tokens=found.cached_tokens or 0,
        attempts=attempts,
        seconds=round(time.monotonic() - began, 6),
        embedding=labels.sums(found.told).astype("<f4").tobytes(),
        chunks=[],
    )


def _request(ids: Ids, path: Path, token: int, *, told: int = _LIKELIEST) -> dict[str, Any]:
    return {
        "prompt": [*ids.tolist(), *path],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": told,
        "logit_bias": [[token, _SURE]],
    }


def _read(result: dict[str, Any]) -> dict[int, float]:
    """Tokens told of -> their log-probabilities; none where the token drawn is a part of a character.

    Raises:
        Refused: llama.cpp says that the request is wrong.
        Disconnected: It failed otherwise.
    """
    failure = failure_of(result)
    if failure is not None:
        raise failure
    try:
        logprobs = result["choices"][0]["logprobs"]
        if not logprobs:
            return {}
        (drawn,) = logprobs["content"]
        told = [*drawn["top_logprobs"], drawn]
        return {int(one["id"]): max(_LEAST_LOGPROB, float(one["logprob"])) for one in told}
    except (KeyError, TypeError, ValueError) as error:
        raise errors.Disconnected(reason=_NOTHING) from error
