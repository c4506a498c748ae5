"""Reasoning and tool calls of an endpoint's answer are told apart from its text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rowmill.engines.http_answer import Answer, Asked, read_answer
from rowmill.rows import ToolCall

ASKED = Asked("/v1/chat/completions", b"{}")


def answer(message: dict[str, Any], finish_reason: str = "stop", **usage: Any) -> Answer:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    body = {"choices": [choice], "usage": {"completion_tokens": 9, **usage}}
    return read_answer(200, json.dumps(body).encode(), ASKED)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_apart_and_its_tokens_are_the_endpoints(name: str) -> None:
    details = {"reasoning_tokens": 5}

    found = answer({"content": "yes", name: "hm"}, completion_tokens_details=details)

    assert ("yes", "hm", 5) == (found.text, found.choices[0].reasoning, found.reasoning_tokens)


def test_answer_cut_within_its_reasoning_is_none() -> None:
    cut = answer({"content": None, "reasoning_content": "hm"}, "length")
    empty = answer({"content": ""}, "length")

    assert (None, "length", None) == (cut.text, cut.finish_reason, cut.reasoning_tokens)
    assert "" == empty.text


def test_tool_calls_are_apart_from_the_text() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"type": "function", "function": {"name": "g", "arguments": {"b": 2}}},
    ]

    found = answer({"content": None, "tool_calls": calls}, "tool_calls")

    assert [ToolCall("c1", "f", '{"a": 1}'), ToolCall(None, "g", '{"b":2}')] == (
        found.choices[0].tool_calls
    )
    assert ("", "tool_calls") == (found.text, found.finish_reason)
