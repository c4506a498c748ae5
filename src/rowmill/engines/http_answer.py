"""Status and body of a response -> an answer, a refusal for good, or a failure that may pass.

Promises: half an answer is never taken for one; NaN and Infinity in a body become null, the answer stays.
Knows nothing of: connections, waiting.
Memory: the body.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from rowmill import errors
from rowmill.rows import Choice, Sampling

PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that may pass; so may all from 500 on."""
_MOST_WORDS = 300


class Answer(msgspec.Struct):
    """What an endpoint said to one row."""

    choices: list[Choice]
    """In index order."""
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class ShortAnswer(errors.RowError):
    """Fewer choices came than were asked for; those that came are kept."""

    kind = "short_answer"


_MOST_TOKENS = 2**32


def read_answer(status: int, body: bytes) -> Answer:
    """The answer in a response.

    Raises:
        Refused: The endpoint said no for good.
        Transient: It may say something else next time.
    """
    found = _decode(body)
    if status != 200:
        raise _failure(status, f"HTTP {status}: {_words(found, body)}")
    if not isinstance(found, dict):
        raise errors.Disconnected(reason="HTTP 200 with a body that is no JSON object")
    if found.get("error"):
        raise _failure(_code(found["error"]), f"HTTP 200 with an error: {_words(found, body)}")
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise errors.Disconnected(reason="HTTP 200 with a body without `choices`")
    try:
        fields = list(map(_choice, range(len(choices)), choices))
        read = sorted(msgspec.convert(fields, list[Choice]), key=lambda c: c.index)
    except (AttributeError, TypeError, ValueError) as error:
        reason = "HTTP 200 with `choices` of an unknown shape"
        raise errors.Disconnected(reason=reason) from error
    return Answer(read, *_usage(found.get("usage")))


def check_answer(answer: Answer, sampling: Sampling) -> None:
    """See that so many choices came as were asked for.

    Raises:
        ShortAnswer: Fewer.
    """
    got = len(answer.choices)
    if got < sampling.n:
        raise ShortAnswer(
            reason=f"{got} of {sampling.n} choices came; those are kept, ask again"
        )


def _decode(body: bytes) -> Any:
    """The value of a JSON text, or None. Python's own reader is asked where NaN or Infinity may be in it."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return _clean(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _clean(value: Any) -> Any:
    """The value without what strict JSON cannot hold: NaN becomes null, half a surrogate pair U+FFFD."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _failure(status: int, reason: str) -> errors.RowmillError:
    if status == 429:
        return errors.RateLimited(reason=reason)
    if status in PASSING or status >= 500:
        return errors.Disconnected(reason=reason)
    return errors.Refused(reason=reason)


def _code(error: Any) -> int:
    """Status that an error object names; 500, may pass, where it names none."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def _words(found: Any, body: bytes) -> str:
    """The server's own message, as one line of bounded length."""
    for step in ("error", "message"):
        if isinstance(found, dict):
            found = found.get(step) or found.get("message") or found.get("detail") or found
    text = found if isinstance(found, str) else body.decode("utf-8", "replace")
    line = " ".join(text.split())
    return line[:_MOST_WORDS] or "no message"


def _usage(usage: Any) -> tuple[int, int, int]:
    if not isinstance(usage, dict):
        return 0, 0, 0
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = (usage.get("prompt_tokens"), cached, usage.get("completion_tokens"))
    prompt, cached, output = (
        c if isinstance(c, int) and 0 <= c < _MOST_TOKENS else 0 for c in counts
    )
    return prompt, cached, output


def _choice(position: int, choice: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `Choice`, not checked yet."""
    message = choice.get("message")
    index = choice.get("index")
    return {
        "index": position if index is None else index,
        "text": (choice.get("text") if message is None else _message_text(message)) or "",
        "finish_reason": choice.get("finish_reason") or "",
        "token_ids": choice.get("token_ids"),
        "logprobs": _logprobs(choice.get("logprobs")),
    }


def _message_text(message: dict[str, Any]) -> str | None:
    """Content of an answer; the JSON of its tool calls where there is no content but those."""
    calls = message.get("tool_calls")
    content: str | None = message.get("content")
    return msgspec.json.encode(calls).decode() if calls and not content else content


def _logprobs(found: Any) -> list[dict[str, Any]] | None:
    if not isinstance(found, dict):
        return None
    if found.get("content") is not None:
        return [
            {
                "token": entry.get("token"),
                "logprob": _number(entry.get("logprob")),
                "top": {
                    top.get("token"): _number(top.get("logprob"))
                    for top in entry.get("top_logprobs") or ()
                },
            }
            for entry in found["content"]
        ]
    tokens = found.get("tokens") or []
    chosen = found.get("token_logprobs") or [None] * len(tokens)
    tops = found.get("top_logprobs") or [None] * len(tokens)
    return [
        {"token": token, "logprob": _number(logprob), "top": top or {}}
        for token, logprob, top in zip(tokens, chosen, tops, strict=True)
    ]


def _number(value: Any) -> float | None:
    """A finite number; servers write minus infinity as null, or as -9999."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
