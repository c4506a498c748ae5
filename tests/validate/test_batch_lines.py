from __future__ import annotations

import json
from typing import Any

import pytest

from tests.validate.rows_of import WIRE, ask, line, recipe, refusal

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def batch(body: Any = None, **columns: Any) -> bytes:
    body = {"model": "m", "messages": MESSAGES} if body is None else body
    return line(**({"custom_id": "c", "method": "POST", "url": CHAT, "body": body} | columns))


def test_a_chat_line_is_its_body() -> None:
    request = ask(batch({"messages": MESSAGES, "max_tokens": 5, "temperature": 0}))

    assert request.id == b'"c"'
    assert request.messages == MESSAGES
    assert (request.sampling.max_tokens, request.sampling.temperature) == (5, 0)


def test_a_completions_line_is_raw_text_or_ids() -> None:
    url = "/v1/completions"

    assert ask(batch({"prompt": "a"}, url=url), kind="chat").text == "a"
    assert ask(batch({"prompt": [1, 2]}, url=url)).ids == [1, 2]
    assert "`body.prompt` is a list of 2 strings" in refusal(
        batch({"prompt": ["a", "b"]}, url=url)
    )


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"url": "/v1/embeddings"},
            "`url` is `/v1/embeddings`, expected `/v1/chat/completions`",
        ),
        ({"url": None}, "`url` is null"),
        ({"method": "GET"}, "`method` is `GET`, expected `POST`"),
        ({"body": "x"}, "`body` is a string, expected an object"),
        ({"body": {}}, "`body.messages` is missing"),
        ({"body": {"messages": MESSAGES, "prompt": "x"}}, "`body.prompt` in a line for"),
        ({"body": {"messages": MESSAGES, "stream": True}}, "`body.stream` is true"),
        ({"body": {"messages": MESSAGES, "max_tokens": "5"}}, "`body.max_tokens` is a string"),
        ({"body": {"messages": [], "n": 1}}, "`body.messages` is an empty list"),
        ({"body": {"messages": [{"role": "x"}]}}, "`body.messages[0].role` is `x`"),
        ({"body": {"messages": MESSAGES, "logit_bias": {}}}, "`body.logit_bias` is unknown"),
        (
            {"body": {"messages": MESSAGES, "tool_choice": "required"}},
            "`body.tool_choice` is unknown",
        ),
        ({"body": {"messages": MESSAGES, "tools": 5}}, "`body.tools` is a number"),
    ],
)
def test_a_wrong_line_names_the_field(columns: dict[str, Any], said: str) -> None:
    assert said in refusal(batch(**columns))


def test_another_model_is_refused_where_the_job_names_one() -> None:
    engine = {"name": "http", "model": "tiny"}

    assert ask(batch()).messages
    assert ask(batch({"model": "tiny", "messages": MESSAGES}), engine=engine).messages
    assert "`body.model` is `m`, expected the job's `engine.model`, `tiny`" in refusal(
        batch(), engine=engine
    )


def test_keys_that_change_no_answer_are_passed_over() -> None:
    body = {"messages": MESSAGES, "user": "u", "metadata": {}, "stream": False, "stop": None}

    assert ask(batch(body)).messages == MESSAGES


def test_an_endpoint_gets_the_keys_that_are_not_ours() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {
        "messages": MESSAGES,
        "logit_bias": {"5": 1},
        "tools": tools,
        "tool_choice": "required",
    }
    request = ask(batch(body), recipe(WIRE, sampling={"extra": {"x": 1, "logit_bias": {}}}))

    assert json.loads(request.sampling.extra) == {
        "x": 1,
        "logit_bias": {"5": 1},
        "tools": tools,
        "tool_choice": "required",
    }
    assert json.loads(request.wire) == MESSAGES


def test_half_a_character_in_such_a_key_is_a_row_error() -> None:
    raw = batch({"messages": MESSAGES, "user": "X"}).replace(b'"X"', b'"\\ud800"')

    assert "`body.user` holds half a surrogate pair" in refusal(raw, recipe(WIRE))


def test_url_and_body_alone_make_no_batch_line() -> None:
    assert ask(line(url="http://x", body={"a": 1}, prompt="a")).text == "a"
    assert "`prompt` is missing" in refusal(line(url="http://x", body={"a": 1}))


@pytest.mark.parametrize("own", ["prompt", "messages", "prompt_token_ids"])
def test_a_batch_line_with_a_prompt_of_its_own_is_told_that_it_has_two(own: str) -> None:
    both = f"`{own}` and `body` in one row, expected one of them"

    assert both in refusal(batch(**{own: "x"}))
    assert both in refusal(batch(**{own: "x", "url": "/score"}))
    assert both in refusal(batch(**{own: "x"}).replace(b"/v1/", b"\\/v1\\/"))
    assert ask(batch(**{own: None})).messages == MESSAGES


def test_a_web_page_with_a_prompt_is_asked_by_its_prompt() -> None:
    page = {"method": "GET", "url": "http://x/v1", "body": "<html>"}

    assert ask(line(**page, prompt="a")).text == "a"
    assert ask(line(custom_id="c", body={"a": 1}, prompt="a")).text == "a"


def test_a_null_counts_as_absent() -> None:
    nulls = {"method": None, "url": None, "body": None}

    assert ask(line(custom_id="c", **nulls, prompt="a")).text == "a"
    assert "`prompt` is missing" in refusal(line(custom_id="c", **nulls))
    assert ask(batch(custom_id=None)).messages == MESSAGES
    assert "`url` is missing" in refusal(
        line(custom_id="c", prompt=None, body={}, method="POST")
    )
