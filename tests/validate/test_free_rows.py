from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import ConfigError, InvalidRow, RowError
from rowmill.rows import Request
from tests.strategies import TEXTS
from tests.validate.rows_of import WIRE, ask, by_id, fates, line, recipe, refusal

USER = {"role": "user", "content": "hi"}
CARRIED = st.dictionaries(
    st.text(st.sampled_from('abc é"\\\n'), min_size=1), st.integers() | TEXTS, max_size=4
)


@given(
    st.lists(
        st.tuples(TEXTS.filter(bool), CARRIED, st.none() | TEXTS | st.integers()), max_size=6
    )
)
def test_a_prompt_is_taken_byte_for_byte_whatever_is_carried(
    rows: list[tuple[str, dict[str, Any], Any]],
) -> None:
    """One recipe for all rows: what it learns from one must not change another."""
    by = recipe()
    for text, carried, id in rows:
        request = ask(line(**{**carried, "prompt": text, "id": id}), by)

        assert request.text == text
        assert request.sampling is by.request._of_job  # type: ignore[attr-defined]
        expected = b"" if id in (None, "") else json.dumps(id, ensure_ascii=False).encode()
        assert json.loads(request.id or b"null") == json.loads(expected or b"null")


def test_columns_learnt_from_one_row_never_hide_what_means_something() -> None:
    by = recipe()
    assert ask(line(prompt="a", url="u", method="m", note=1), by).text == "a"

    assert (
        ask(line(prompt="a", url="u", method="m", note=1, max_tokens=3), by).sampling.max_tokens
        == 3
    )
    assert "in one row" in refusal(line(prompt="a", url="u", note=1, messages=[USER]), by)
    body = {"messages": [USER]}
    url = "/v1/chat/completions"
    assert ask(line(custom_id="x", method="POST", url=url, body=body, note=1), by).messages


def test_case_04_each_odd_prompt_says_what_was_found() -> None:
    found = by_id(fates("04"), "04")
    texts = {
        id: fate.text for id, fate in found.items() if isinstance(fate, Request) and fate.text
    }
    said = {id: str(fate) for id, fate in found.items() if isinstance(fate, RowError)}

    assert texts == {
        "ok-before": "before",
        "space": "   ",
        "newline": "\n",
        "zwsp": "\u200b",
        "ok-after": "after",
    }
    ids = found["list-of-int"]
    assert isinstance(ids, Request)
    assert ids.ids == [0, 109, 110]
    expected = {
        "empty": "`prompt` is an empty string",
        "null": "`prompt` is null",
        "absent": "`prompt` is missing",
        "number": "`prompt` is a number",
        "bool": "`prompt` is a boolean",
        "dict": "`prompt` is an object",
        "list-of-str": "`prompt` is a list of 2 strings, expected one prompt a row",
        "list-empty": "`prompt` is an empty list",
        "list-mixed": "`prompt[0]` is a string",
        "msgs-empty": "`messages` is an empty list",
        "msgs-null": "`messages` is null",
        "msgs-string": "`messages` is a string",
        "both": "`prompt` and `messages` in one row",
    }
    assert {id: said[id][: len(start)] for id, start in expected.items()} == expected
    assert said.keys() == expected.keys()


def test_a_null_beside_the_one_that_counts_is_as_absent() -> None:
    assert ask(line(prompt=None, messages=[USER])).messages == [USER]
    assert ask(line(prompt="a", messages=None)).text == "a"


def test_the_conversation_column_has_the_name_the_job_gives_it() -> None:
    assert ask(line(talk=[USER]), messages="talk").messages == [USER]
    assert "`talk[0].role` is absent" in refusal(line(talk=[{"content": "x"}]), messages="talk")
    with pytest.raises(ConfigError, match="that one holds prompts"):
        recipe(messages="prompt")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "an empty list"),
        ("x", "a string"),
        ([1, -1], "`prompt_token_ids[1]` is -1"),
        ([2**32], "`prompt_token_ids[0]` is 4294967296"),
        ([True], "`prompt_token_ids[0]` is a boolean"),
        ([1, 2.0], "`prompt_token_ids[1]` is a number"),
        ([[1]], "`prompt_token_ids[0]` is a list"),
    ],
)
def test_token_ids_are_whole_numbers_in_range(ids: object, said: str) -> None:
    assert said in refusal(line(prompt_token_ids=ids))


def test_a_prompt_column_is_raw_unless_the_job_says_chat() -> None:
    assert ask(line(prompt="a")).text == "a"
    request = ask(line(prompt="a"), kind="chat", system="s")
    assert request.messages == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
    ]


def test_an_endpoint_is_sent_the_messages_as_they_stood() -> None:
    raw = b'{"messages": [ {"role":"user", "content": [{"type":"text","text":"\\u00fc"}] } ]}'
    request = ask(raw, recipe(WIRE))

    assert request.wire == raw[13:-1]
    assert request.wire_field == "messages"
    assert request.messages == [{"role": "user", "content": "ü"}]


def test_an_endpoint_is_sent_text_and_ids_as_prompt() -> None:
    by = recipe(WIRE)
    text, ids = ask(line(prompt="a\n"), by), ask(line(prompt=[1, 2]), by)

    assert (text.wire, text.wire_field) == (b'"a\\n"', "prompt")
    assert (ids.wire, ids.wire_field) == (b"[1,2]", "prompt")
    assert ask(line(prompt="a")).wire == b""


def test_tools_reach_the_template_and_the_endpoint() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    request = ask(line(messages=[USER], tools=tools), recipe(WIRE))

    assert request.tools == tools
    assert json.loads(request.sampling.extra) == {"tools": tools}
    assert ask(line(messages=[USER], tools=tools)).sampling.extra == ""
    assert "`tools[0].function.name` is null" in refusal(
        line(messages=[USER], tools=[{"function": {}}])
    )
    assert "expected them beside `messages`" in refusal(line(prompt="a", tools=tools))


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"raw": True, "kind": "chat"}, "exclude each other"),
        ({"system": "s", "kind": "generate"}, "goes with chat"),
        ({"system": "s"}, "goes before the user message"),
        ({"validate": {"id_column": 'a"b'}}, "plain name"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    job: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        recipe(**job)


def test_chat_without_a_template_is_refused_unless_an_endpoint_renders() -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        recipe(chat_template=False, kind="chat")
    assert ask(line(prompt="a"), recipe(WIRE, chat_template=False, kind="chat")).messages


@given(
    st.dictionaries(
        st.sampled_from(["prompt", "messages", "id", "stop", "n", "x"]),
        TEXTS
        | st.none()
        | st.integers()
        | st.lists(st.integers() | TEXTS, max_size=2)
        | st.just([USER]),
    )
)
def test_any_object_is_a_request_or_a_row_error(row: dict[str, Any]) -> None:
    try:
        request = ask(line(**row))
    except InvalidRow as error:
        assert str(error)  # noqa: PT017 - either end is right
    else:
        given = (request.text, request.messages, request.ids)
        assert len([one for one in given if one is not None]) == 1
