"""Streamed answers: whatever pieces they come in, they are what an unstreamed answer is."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import errors
from rowmill.engines.http_answer import Asked, read_answer
from rowmill.engines.http_stream import Stream

CHAT = Asked("/v1/chat/completions", b"{}")


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


def piece(index: int, finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
    return event(id="x", object="chat.completion.chunk", model="m", choices=[choice])


def whole(*pieces: bytes) -> bytes:
    stream = Stream()
    for one in pieces:
        stream.feed(one)
    return stream.body()


USAGE = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 7})
END = b"data: [DONE]\n\n"


@given(cuts=st.lists(st.integers(0, 2000), max_size=20))
def test_an_answer_is_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    text = b"".join(
        [
            b": keep-alive\r\n\r\n",
            piece(1, content="zwei", role="assistant"),
            piece(0, content="caf\u00e9 "),
            piece(0, content="\U0001f600"),
            piece(1, "length", content="!"),
            piece(0, "stop"),
            USAGE,
            END,
        ]
    )
    places = [0, *sorted(cut % len(text) for cut in cuts), len(text)]

    body = whole(*(text[a:b] for a, b in pairwise(places)))
    answer = read_answer(200, body, CHAT)

    assert [("caf\u00e9 \U0001f600", "stop"), ("zwei!", "length")] == [
        (choice.text, choice.finish_reason) for choice in answer.choices
    ]
    assert (5, 7) == (answer.prompt_tokens, answer.output_tokens)
    assert "chat.completion" == json.loads(body)["object"]


def test_tool_calls_and_logprobs_are_joined() -> None:
    def call(index: int, **fields: Any) -> bytes:
        return piece(0, tool_calls=[{"index": index, **fields}])

    token = {"token": "a", "logprob": -1.0, "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": None}, "logprobs": {"content": [token]}}
    body = json.loads(
        whole(
            call(0, id="c1", type="function", function={"name": "f", "arguments": ""}),
            call(0, function={"arguments": '{"x":'}),
            call(1, id="c2", type="function", function={"name": "g", "arguments": "{}"}),
            call(0, function={"arguments": "1}"}),
            event(choices=[choice]),
            event(choices=[choice]),
            piece(0, "tool_calls"),
            END,
        )
    )

    (found,) = body["choices"]
    calls = found["message"]["tool_calls"]
    assert [("c1", "f", '{"x":1}'), ("c2", "g", "{}")] == [
        (one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls
    ]
    assert [token, token] == found["logprobs"]["content"]


@pytest.mark.parametrize("pieces", [[], [piece(0, content="half")], [b"data: {cut\n\n", END]])
def test_a_stream_without_its_end_is_no_answer(pieces: list[bytes]) -> None:
    with pytest.raises(errors.Disconnected):
        whole(*pieces)


def test_an_error_in_a_stream_is_an_error() -> None:
    body = whole(
        piece(0, content="half"), event(error={"message": "out of memory", "code": 500})
    )

    with pytest.raises(errors.Disconnected, match="out of memory"):
        read_answer(200, body, CHAT)
