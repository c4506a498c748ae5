from __future__ import annotations

import json
from typing import Any

import pytest

from rowmill.errors import RowError
from rowmill.rows import Request
from tests.validate.rows_of import ask, by_id, fates, line, refusal


def said_of(message: dict[str, Any]) -> str:
    return refusal(line(messages=[{"role": "user", "content": "q"}, message]))


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}


def test_case_06_arguments_become_objects_or_row_errors() -> None:
    found = by_id(fates("06"), "06")

    def arguments(id: str) -> Any:
        request = found[id]
        assert isinstance(request, Request)
        assert request.messages is not None
        return request.messages[1]["tool_calls"][0]["function"]["arguments"]

    assert arguments("string") == arguments("object") == {"a": 3, "b": 18}
    assert (
        arguments("empty-object") == arguments("empty-string") == arguments("null-string") == {}
    )
    assert arguments("unicode") == {"stadt": "Köln"}
    for id in ("cut", "array"):
        assert "`messages[1].tool_calls[0].function.arguments`" in str(found[id])


def test_case_08_roles_are_exact() -> None:
    found = by_id(fates("08"), "08")
    bad = {id for id, fate in found.items() if isinstance(fate, RowError)}

    assert bad == {"bad-role", "upper-role", "no-role"}
    assert "`messages[0].role` is `User`" in str(found["upper-role"])


def test_case_11_text_parts_are_joined_and_others_named() -> None:
    found = by_id(fates("11"), "11")
    two = found["two-parts"]
    assert isinstance(two, Request)
    assert two.messages == [{"role": "user", "content": "What is\n2+2?"}]
    for id, said in {
        "empty-list": "`messages[0].content` is an empty list",
        "unknown-part": "`messages[0].content[0]` is a part of type `video`",
        "bare-strings": "`messages[0].content[0]` is a string",
        "image-part": "`messages[0].content[1]` is a part of type `image_url`",
    }.items():
        assert said in str(found[id])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("x", "`messages[1]` is a string"),
        ({"role": 5, "content": "x"}, "`messages[1].role` is a number"),
        (
            {"role": "Dear reader, this is private", "content": "x"},
            "`messages[1].role` is a string",
        ),
        ({"role": "user"}, "`messages[1].content` is null"),
        ({"role": "assistant", "content": None}, "`messages[1].content` is null"),
        (
            {"role": "assistant", "content": None, "tool_calls": []},
            "`messages[1].content` is null",
        ),
        ({"role": "user", "content": 5}, "`messages[1].content` is a number"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0].text` is null"),
        ({"role": "user", "content": [{}]}, "content[0]` is a part of type null"),
        (
            {"role": "user", "content": "x", "tool_calls": [call("")]},
            "tool_calls` is in a message",
        ),
        ({"role": "assistant", "tool_calls": "x"}, "`messages[1].tool_calls` is a string"),
        ({"role": "assistant", "tool_calls": ["x"]}, "`messages[1].tool_calls[0]` is a string"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "function.name` is null"),
        (call(5), "function.arguments` is a number"),
        (call("[1]"), "function.arguments` is a list"),
        (call("{" * 99), "function.arguments` is a string that is no JSON"),
    ],
)
def test_a_wrong_message_is_named_by_its_index(message: Any, said: str) -> None:
    sentence = said_of(message)

    assert said in sentence
    assert "private" not in sentence


def test_null_content_beside_tool_calls_is_empty() -> None:
    request = ask(line(messages=[call('{"a": "é"}')]))

    assert request.messages == [{**call({"a": "é"}), "content": ""}]


def test_other_fields_of_a_message_are_kept() -> None:
    message = {"role": "tool", "content": "54", "tool_call_id": "c1", "name": "mul"}

    assert json.loads(line(m=message))["m"] == message
    assert ask(line(messages=[message])).messages == [message]
