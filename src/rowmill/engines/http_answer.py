"""Status and body of a response -> an answer, a refusal for good, the end of the job, or a failure that may pass.

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
from rowmill.engines.http_kinds import read_scores, read_vectors, read_whole
from rowmill.engines.http_labels import read_weights
from rowmill.engines.thoughts import has_no_answer
from rowmill.rows import NULL, Choice, Sampling

PASSING = frozenset({408, 409, 425, 429})
"""Statuses below 500 that may pass; so may those from 500 on."""
NEVER = frozenset({501, 505})
"""But not these: the server does not know how."""
NO_ENTRY = frozenset({401, 402, 407})
"""Statuses that every other row would get too: wrong or missing key, nothing left to pay with."""
QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""Codes beside status 429 that no waiting helps against."""
_MOST_WORDS = 300


class Answer(msgspec.Struct):
    """What an endpoint said to one row."""

    choices: list[Choice]
    """In index order; empty where the answer is no text."""
    text: str | None
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    body: msgspec.Raw = NULL
    """As it came, where it is to be kept."""
    reasoning_tokens: int | None = None
    """Of those of the answer; None where the endpoint does not say."""
    vectors: list[bytes] = []
    """Where those are the answer."""


class Asked(msgspec.Struct, frozen=True):
    """What an answer must fit."""

    path: str
    body: bytes
    keeps_body: bool = False
    is_vector: bool = False
    """The vectors in the body are the answer, not the body itself."""
    is_scored: bool = False
    """The scores in it are."""
    label_tokens: tuple[int, ...] = ()
    """Where labels are weighed: number of tokens of each."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer is a body without choices."""
        return not self.path.endswith("completions")


class ShortAnswer(errors.RowError):
    """Fewer choices came than were asked for; those that came are kept."""

    kind = "short_answer"


_MOST_TOKENS = 2**32


def read_answer(status: int, body: bytes, asked: Asked, *, content_type: str = "") -> Answer:
    """The answer in a response.

    Raises:
        RowError: The endpoint said no for good.
        Stopped: It will say no to every row.
        Transient: It may say something else next time.
    """
    found, is_plain = _decode(body)
    if status != 200:
        error = _failure(status, found, f"HTTP {status}: {_words(found, body)}")
        if asked.keeps_body and isinstance(found, dict):
            error.fields["body"] = msgspec.json.encode(found)
        raise error
    if not isinstance(found, dict):
        kind = content_type.partition(";")[0].strip()
        what = f" (`{kind}`)" if kind and kind != "application/json" else ""
        reason = f"HTTP 200 with a body that is no JSON object{what}"
        raise errors.Disconnected(reason=reason)
    told = found.get("error") or (found if found.get("object") == "error" else None)
    if told:
        reason = f"HTTP 200 with an error: {_words(found, body)}"
        raise _failure(_code(told), found, reason)
    if asked.is_whole:
        return _whole_answer(found, body, asked, is_plain=is_plain)
    if asked.label_tokens:
        weights = read_weights(found, asked.body, asked.label_tokens)
        # A server may count the token that it draws to no end.
        prompt, cached, _ = _usage(found)
        return Answer([], None, "", prompt, cached, 0, vectors=[weights])
    choices = _choices(found)
    first = choices[0]
    is_none = has_no_answer(first.text, first.reasoning, first.finish_reason)
    text = None if is_none and not first.tool_calls else first.text
    answer = Answer(choices, text, first.finish_reason, *_usage(found))
    answer.reasoning_tokens = _reasoning_tokens(found)
    if asked.keeps_body:
        answer.body = msgspec.Raw(body if is_plain else msgspec.json.encode(found))
    return answer


def _choices(found: dict[str, Any]) -> list[Choice]:
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise errors.Disconnected(reason="HTTP 200 with a body without `choices`")
    try:
        fields = list(map(_choice, range(len(choices)), choices))
        return sorted(msgspec.convert(fields, list[Choice]), key=lambda c: c.index)
    except (AttributeError, TypeError, ValueError) as error:
        reason = "HTTP 200 with `choices` of an unknown shape"
        raise errors.Disconnected(reason=reason) from error


def _whole_answer(
    found: dict[str, Any], body: bytes, asked: Asked, *, is_plain: bool
) -> Answer:
    if asked.is_vector or asked.is_scored:
        return _vector_answer(found, body, asked)
    whole = read_whole(asked.path, found, asked.body)
    as_it_came = is_plain and whole.is_sorted
    kept = msgspec.Raw(body if as_it_came else msgspec.json.encode(found))
    return Answer([], whole.text, whole.finish_reason, *_usage(found), kept)


def _vector_answer(found: dict[str, Any], body: bytes, asked: Asked) -> Answer:
    """The vectors of several texts: a bad one among them is its own row's trouble."""
    read = read_scores if asked.is_scored else read_vectors
    answer = Answer([], None, "", *_usage(found), vectors=read(found, asked.body))
    if asked.keeps_body:
        answer.body = msgspec.Raw(msgspec.json.encode(found))
    return answer


def check_answer(answer: Answer, sampling: Sampling) -> None:
    """See that so many choices came as were asked for.

    Raises:
        ShortAnswer: Fewer.
    """
    got = len(answer.choices)
    if got and got < sampling.n:
        raise ShortAnswer(
            reason=f"{got} of {sampling.n} choices came; those are kept, ask again"
        )


def _decode(body: bytes) -> tuple[Any, bool]:
    """The value of a JSON text, or None, and whether it is strict JSON on one line as it stands.

    Python's own reader is asked where NaN or Infinity may be in it.
    """
    try:
        return msgspec.json.decode(body), b"\n" not in body and b"\r" not in body
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return _clean(json.loads(body)), False
    except (ValueError, RecursionError):
        return None, False


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


def _failure(status: int, found: Any, reason: str) -> errors.RowmillError:
    if status in NO_ENTRY:
        what = "nothing is left to pay with" if status == 402 else "the endpoint lets nobody in"
        return errors.Stopped(reason=f"{what}: {reason}; see to `engine.api_key`")
    if status == 429 and QUOTA & _codes(found):
        return errors.Stopped(reason=f"the quota is used up: {reason}")
    if status == 429:
        return errors.RateLimited(reason=reason, status=status)
    if status in PASSING or (status >= 500 and status not in NEVER):
        return errors.Disconnected(reason=reason, status=status)
    return errors.Refused(reason=reason, status=status)


def _codes(found: Any) -> set[Any]:
    error = found.get("error") if isinstance(found, dict) else None
    if not isinstance(error, dict):
        return set()
    return {word for name in ("code", "type") if isinstance(word := error.get(name), str)}


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


def _usage(found: dict[str, Any]) -> tuple[int, int, int]:
    """Tokens of prompt, of it from the cache, and of the answer; responses have names of their own."""
    usage = found.get("usage")
    if not isinstance(usage, dict):
        return 0, 0, 0
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    asked = usage.get("prompt_tokens", usage.get("input_tokens"))
    counts = (asked, cached, usage.get("completion_tokens", usage.get("output_tokens")))
    prompt, cached, output = (
        c if isinstance(c, int) and 0 <= c < _MOST_TOKENS else 0 for c in counts
    )
    return prompt, cached, output


def _reasoning_tokens(found: dict[str, Any]) -> int | None:
    usage = found.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    count = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return count if isinstance(count, int) and 0 <= count < _MOST_TOKENS else None


def _choice(position: int, choice: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `Choice`, not checked yet."""
    message = choice.get("message")
    index = choice.get("index")
    return {
        "index": position if index is None else index,
        "text": (choice if message is None else message).get(
            "text" if message is None else "content"
        )
        or "",
        "finish_reason": choice.get("finish_reason") or "",
        "reasoning": _reasoning(message or choice),
        "tool_calls": list(map(_tool_call, (message or {}).get("tool_calls") or ())),
        "token_ids": choice.get("token_ids"),
        "logprobs": _logprobs(choice.get("logprobs")),
    }


def _reasoning(message: dict[str, Any]) -> str | None:
    """What the model said to itself, by the names that vLLM, SGLang, llama.cpp and others give it."""
    found = message.get("reasoning_content") or message.get("reasoning")
    return found if isinstance(found, str) else None


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """A call; arguments that came as an object become the text that they are elsewhere."""
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return {
        "id": call.get("id"),
        "name": function.get("name") or "",
        "arguments": arguments or "",
    }


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
