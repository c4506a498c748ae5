from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.validate.rows_of import WIRE, ask, line, recipe, refusal

CHAT = "/v1/chat/completions"
SERVED = msgspec.structs.replace(WIRE, served="tiny")
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
    assert "`body.model` is a number" in refusal(batch({"model": 5, "messages": MESSAGES}))


def named(model: str, **body: Any) -> bytes:
    url = "/v1/embeddings" if "input" in body else CHAT
    return batch({"model": model, **(body or {"messages": MESSAGES})}, url=url)


def test_another_model_than_the_one_that_is_served_is_refused() -> None:
    by = recipe(SERVED, validate={"model_names": ["other"]})

    for model in ("tiny", "other"):
        assert ask(named(model), by).sampling.extra == ""
    for _ in range(2):
        assert "`body.model` is `m`, expected the model that is served, `tiny` or `other`" in (
            refusal(named("m"), by)
        )
    assert "`body.model` is `m`" in refusal(named("m", input="x"), by)


def test_an_endpoint_is_told_the_model_where_nobody_else_knows_it() -> None:
    by = recipe(WIRE)

    assert [json.loads(ask(named(m), by).sampling.extra) for m in ("m", "n", "m")] == [
        {"model": "m"},
        {"model": "n"},
        {"model": "m"},
    ]
    body = {"model": "m", "prompt": "a", "max_tokens": 5}
    for model in ("m", "n", "m", "n"):  # the fast lane as well
        request = ask(batch(body | {"model": model}, url="/v1/completions"), by)
        assert json.loads(request.sampling.extra) == {"model": model}


def test_another_name_of_the_model_is_not_told_to_its_endpoint() -> None:
    by = recipe(SERVED, validate={"model_names": ["other"]})

    assert json.loads(ask(named("other", input="x"), by).wire) == {"input": "x"}
    assert json.loads(ask(named("tiny", input="x"), by).wire) == {"model": "tiny", "input": "x"}


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


def test_a_prompt_and_a_body_fail_whatever_else_the_row_has() -> None:
    both = {"prompt": "P", "url": CHAT, "body": {"messages": MESSAGES}}
    escaped = line(**both).replace(b'"/v1', b'"\\u002fv1')

    for raw in (line(**both), escaped):
        assert "`prompt` and `body` in one row, expected one of them" in refusal(raw)


def test_other_names_alone_do_not_hide_the_model_from_an_endpoint() -> None:
    by = recipe(WIRE, validate={"model_names": ["alias", "m2"]})

    for name in ("m1", "m2"):
        request = ask(named(name), by)
        assert json.loads(request.sampling.extra)["model"] == name
    assert "expected the job's `engine.model`, `alias` or `m2`, or none" in refusal(
        named("m1"), recipe(validate={"model_names": ["alias", "m2"]})
    )
