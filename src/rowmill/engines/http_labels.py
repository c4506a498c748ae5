"""Rows whose labels are weighed -> requests of an endpoint, and its bodies -> the log-probability of each label.

A label stands behind the prompt as if it had been said, all of a row's labels in one request, as token ids; the endpoint
says with which log-probability each token follows those before it (`echo` with `logprobs`), and draws none.

Promises: the sum over a label's tokens, its end's included, of the endpoint's log-probabilities, or no answer: of an
endpoint that does not tell those of a prompt's tokens, nothing is taken for them.
Knows nothing of: connections, what the numbers become.
Memory: the prompt of a batch's rows, once for each label.
Source: OpenAI's completions before `echo` was withdrawn; vLLM 0.32 (`/v1/completions`), tried.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from rowmill import errors
from rowmill.rows import Prompts
from rowmill.tokens.labels import Labels

FIELD = "labelled"
"""What such rows have on the wire."""
PATH = "/v1/completions"
_LEAST_LOGPROB = -9999.0
"""What servers write for minus infinity."""
_ASKED = {"echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0}


def wired(prompts: Prompts, labels: Labels) -> Prompts:
    """Rows of token ids, each with its labels behind it as lists of ids."""
    wires = [
        msgspec.json.encode([[*ids.tolist(), *path] for path in labels.ids])
        for ids in prompts.row_ids()
    ]
    return msgspec.structs.replace(prompts, wires=wires, wire_fields=[FIELD] * len(prompts))


def body_of(wire: bytes, model: str) -> bytes:
    """The body that asks for a row's labels."""
    fields = {"model": model, **_ASKED} if model else _ASKED
    return b'{"prompt":%b,%b' % (wire, msgspec.json.encode(fields)[1:])


def read_weights(found: dict[str, Any], asked: bytes, label_tokens: tuple[int, ...]) -> bytes:
    """The log-probability of each label, as float32.

    Args:
        label_tokens: number of tokens of each.

    Raises:
        Refused: The endpoint does not tell the log-probabilities of a prompt's tokens.
        Disconnected: An answer is missing.
    """
    prompts = msgspec.json.decode(asked)["prompt"]
    choices = found.get("choices")
    if not isinstance(choices, list) or len(choices) != len(prompts):
        reason = f"HTTP 200 without `choices` for each of {len(prompts)} labels"
        raise errors.Disconnected(reason=reason)
    sums = [float("nan")] * len(prompts)
    try:
        for place, choice in enumerate(choices):
            at = choice.get("index", place)
            told = (choice.get("logprobs") or {}).get("token_logprobs") or []
            # One more stands behind them where a server draws a token all the same.
            if len(told) not in (len(prompts[at]), len(prompts[at]) + 1):
                raise errors.Refused(reason=_NOT_TOLD)
            last = told[: len(prompts[at])][-label_tokens[at] :]
            sums[at] = sum(max(_LEAST_LOGPROB, float(one)) for one in last)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        reason = "HTTP 200 with `choices` of an unknown shape"
        raise errors.Disconnected(reason=reason) from error
    return np.array(sums, "<f4").tobytes()


_NOT_TOLD = (
    "the endpoint does not tell the log-probabilities of a prompt's tokens (`echo` with `logprobs`), as labels need;"
    " vLLM's does"
)
