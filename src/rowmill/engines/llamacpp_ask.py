"""A row -> what llama.cpp is asked, and its result -> an answer.

Promises: counts are over all samples;
a text that was cut inside a character ends before it.
Knows nothing of: threads, seats, the library.
Memory: none kept.
Source: xllamacpp 2026.10.11549, tried: `n` > 1 counts the tokens of one sample only, so each is a call of its own;
a JSON Schema that cannot be compiled is dropped without a word: the judge behind the engine sees it.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from rowmill import errors
from rowmill.rows import Choice, Ids, Sampling

_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repeat_penalty",
}
_LEAST_LOGPROB = -1e30
_MOST_WORDS = 200


class Sample(msgspec.Struct):
    """One answer with its counts."""

    choice: Choice
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


def request(ids: Ids, sampling: Sampling, *, max_tokens: int, index: int) -> dict[str, Any]:
    """The arguments for sample number `index` of a row."""
    asked: dict[str, Any] = {
        theirs: value
        for ours, theirs in _FIELDS.items()
        if (value := getattr(sampling, ours)) is not None
    }
    asked |= {"prompt": ids.tolist(), "max_tokens": max_tokens}
    if sampling.seed is not None:
        asked["seed"] = (sampling.seed + index) % 2**32
    if sampling.stop:
        asked["stop"] = list(sampling.stop)
    if sampling.ignore_eos:
        asked["ignore_eos"] = True
    if sampling.logprobs is not None:
        asked["logprobs"] = max(1, sampling.logprobs)
    if sampling.return_token_ids:
        asked |= {"return_tokens": True, "verbose": True}
    if sampling.choices:
        asked["grammar"] = choices_grammar(sampling.choices)
    if sampling.schema:
        asked["json_schema"] = msgspec.json.decode(sampling.schema)
    return asked


def choices_grammar(choices: tuple[str, ...]) -> str:
    """A GBNF grammar of exactly these strings."""
    return "root ::= " + " | ".join(f'"{_escaped(choice)}"' for choice in choices)


def read_sample(result: dict[str, Any], sampling: Sampling, index: int) -> Sample:
    """The answer in a result.

    Raises:
        Refused: llama.cpp says that the request is wrong.
        Disconnected: It failed otherwise; another time it may not.
    """
    failure = failure_of(result)
    if failure is not None:
        raise failure
    found, usage = result["choices"][0], result["usage"]
    text, reason = found["text"], found["finish_reason"] or ""
    if sampling.choices and text in sampling.choices:
        reason = "stop"
    if reason == "length":
        # llama.cpp writes U+FFFD for the bytes of a character that it had no tokens left to end.
        text = text.rstrip("\ufffd")
    choice = Choice(
        index=index,
        text=text,
        finish_reason=reason,
        token_ids=result["__verbose"]["tokens"] if sampling.return_token_ids else None,
        logprobs=_logprobs(found.get("logprobs"), sampling.logprobs),
    )
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Sample(choice, usage["prompt_tokens"], cached, usage["completion_tokens"])


def failure_of(result: dict[str, Any]) -> errors.Refused | errors.Disconnected | None:
    """The error that a result tells of; None where it is an answer."""
    failure = result.get("error")
    if not failure:
        return None
    words = " ".join(str(failure.get("message")).split())[:_MOST_WORDS]
    is_final = 400 <= int(failure.get("code") or 500) < 500
    kind = errors.Refused if is_final else errors.Disconnected
    return kind(reason=f"llama.cpp: {words}")


def _escaped(text: str) -> str:
    named = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(named.get(c) or (c if c >= " " else f"\\x{ord(c):02X}") for c in text)


def _logprobs(found: Any, asked: int | None) -> list[dict[str, Any]] | None:
    if asked is None or not found:
        return None
    return [
        {
            "token": entry["token"],
            "logprob": _number(entry["logprob"]),
            "top": {
                top["token"]: _number(top["logprob"]) for top in entry["top_logprobs"][:asked]
            },
        }
        for entry in found["content"]
    ]


def _number(value: Any) -> float | None:
    """A finite number; llama.cpp's lowest float stands for minus infinity."""
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number and value > _LEAST_LOGPROB else None
