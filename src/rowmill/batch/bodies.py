"""Outcome -> the body that an OpenAI-compatible server would have answered, for engines that give none.

Promises: the fields of vLLM's own bodies, or of OpenAI's, all there, null where there is nothing to tell.
Knows nothing of: files, lines.
Source: bodies written by `vllm run-batch` 0.32.0; OpenAI's API reference (chat completions, completions), 2025.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rowmill.rows import Choice, Outcome, ToolCall

Dialect = Literal["vllm", "openai"]

_OF_VLLM = (
    "prompt_logprobs",
    "prompt_token_ids",
    "prompt_text",
    "kv_transfer_params",
    "ec_transfer_params",
    "metrics",
)
_MESSAGE_OF_VLLM = ("annotations", "audio", "function_call", "reasoning")


class Served(msgspec.Struct, frozen=True):
    """What bodies of one run share."""

    dialect: Dialect
    model: str
    created: int
    """Seconds since 1970 at which the run began."""


def chat_body(outcome: Outcome, served: Served, id: str) -> dict[str, Any]:
    """Body of a chat completion."""
    is_vllm = served.dialect == "vllm"
    choices = [_chat_choice(choice, is_vllm=is_vllm) for choice in _choices(outcome)]
    return {
        "id": f"chatcmpl-{id}",
        "object": "chat.completion",
        **_rest(outcome, served, choices),
    }


def completion_body(outcome: Outcome, served: Served, id: str) -> dict[str, Any]:
    """Body of a plain completion."""
    is_vllm = served.dialect == "vllm"
    choices = [_text_choice(choice, is_vllm=is_vllm) for choice in _choices(outcome)]
    body = {"id": f"cmpl-{id}", "object": "text_completion", **_rest(outcome, served, choices)}
    for name in ("prompt_logprobs", "prompt_token_ids", "prompt_text"):
        body.pop(name, None)
    return body


def _rest(outcome: Outcome, served: Served, choices: list[dict[str, Any]]) -> dict[str, Any]:
    is_vllm = served.dialect == "vllm"
    rest = {
        "created": served.created,
        "model": served.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": None,
        "usage": _usage(outcome, is_vllm=is_vllm),
    }
    return rest | dict.fromkeys(_OF_VLLM) if is_vllm else rest


def _usage(outcome: Outcome, *, is_vllm: bool) -> dict[str, Any]:
    cached = outcome.cached_tokens
    usage: dict[str, Any] = {
        "prompt_tokens": outcome.prompt_tokens,
        "total_tokens": outcome.prompt_tokens + outcome.output_tokens,
        "completion_tokens": outcome.output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached} if cached and not is_vllm else None,
    }
    return usage | {"completion_tokens_details": None} if is_vllm else usage


def _choices(outcome: Outcome) -> list[Choice]:
    alone = Choice(
        index=0,
        text=outcome.text or "",
        finish_reason=outcome.finish_reason,
        reasoning=outcome.reasoning,
        tool_calls=outcome.tool_calls,
    )
    return outcome.choices or [alone]


def _chat_choice(choice: Choice, *, is_vllm: bool) -> dict[str, Any]:
    has_more = bool(choice.tool_calls) or choice.reasoning is not None
    content = None if has_more and not choice.text else choice.text
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if choice.tool_calls:
        message["tool_calls"] = list(map(_tool_call, choice.tool_calls))
    if is_vllm:
        message |= dict.fromkeys(_MESSAGE_OF_VLLM) | {"reasoning": choice.reasoning}
    found = {
        "index": choice.index,
        "message": message,
        "logprobs": {"content": _chat_logprobs(choice.logprobs)} if choice.logprobs else None,
        "finish_reason": choice.finish_reason or None,
    }
    return _with_ids(found, choice) if is_vllm else found


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _text_choice(choice: Choice, *, is_vllm: bool) -> dict[str, Any]:
    found = {
        "index": choice.index,
        "text": choice.text,
        "logprobs": _text_logprobs(choice.logprobs) if choice.logprobs else None,
        "finish_reason": choice.finish_reason or None,
    }
    return _with_ids(found, choice) if is_vllm else found


def _with_ids(found: dict[str, Any], choice: Choice) -> dict[str, Any]:
    return found | {
        "stop_reason": None,
        "token_ids": choice.token_ids,
        "routed_experts": None,
    }


def _chat_logprobs(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **_token(entry["token"], entry["logprob"]),
            "top_logprobs": [_token(*pair) for pair in entry["top"].items()],
        }
        for entry in entries
    ]


def _token(token: str | None, logprob: float | None) -> dict[str, Any]:
    encoded = list((token or "").encode("utf-8", "replace"))
    return {"token": token, "logprob": logprob, "bytes": encoded}


def _text_logprobs(entries: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = [entry["token"] or "" for entry in entries]
    offsets = [0]
    for token in tokens[:-1]:
        offsets.append(offsets[-1] + len(token))
    return {
        "text_offset": offsets[: len(tokens)],
        "token_logprobs": [entry["logprob"] for entry in entries],
        "tokens": tokens,
        "top_logprobs": [entry["top"] for entry in entries],
    }
