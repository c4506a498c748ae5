from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import RowError
from rowmill.pipeline import each
from rowmill.rows import Row
from rowmill.validate import Recipe
from tests.validate.rows_of import WIRE, ask, line, recipe, refusal

PROMPT = "unreadable: `prompt` stands twice in the line, expected each column once"
CONTENT = "invalid: `messages` has an object with the key `content` twice"
Pairs = list[tuple[str, str]]


def text_of(pairs: Pairs, colon: str) -> bytes:
    """An object of (name, JSON text), names as often as they come."""
    return ("{" + ", ".join(f"{json.dumps(k)}{colon}{v}" for k, v in pairs) + "}").encode()


def fates_of(lines: list[bytes], by: Recipe) -> list[str]:
    """`ok` or the sentence of each row, through the way that windows take."""
    found = dict.fromkeys(range(len(lines)), "")

    def reject(key: int, error: RowError) -> None:
        found[key] = f"{error.kind}: {error}"

    for request in each([Row(i, raw) for i, raw in enumerate(lines)], by, reject):
        found[request.key] = "ok"
    return [found[i] for i in range(len(lines))]


def test_a_column_given_twice_among_many_rows_is_found() -> None:
    lines = [line(id=i, prompt=f"text {i}", lang="en") for i in range(3000)]
    lines[2000] = b'{"id": 2000, "prompt": "a", "prompt": "b", "lang": "en"}'
    lines[2500] = b'{"id": 2500, "id": 2501, "prompt": "a"}'

    found = fates_of(lines, recipe())

    assert [(i, said) for i, said in enumerate(found) if said != "ok"] == [
        (2000, PROMPT),
        (2500, PROMPT.replace("prompt", "id")),
    ]


def test_a_row_without_an_id_hides_no_row_with_two() -> None:
    lines = [b'{"id": 1, "id": 2, "prompt": "a"}', b'{"prompt": "b"}', line(id=3, prompt="c")]

    assert fates_of(lines, recipe()) == [PROMPT.replace("prompt", "id"), "ok", "ok"]


def test_two_columns_for_ids_hide_no_row_with_one_of_them_twice() -> None:
    lines = [
        b'{"custom_id": "a", "custom_id": "b", "id": 1, "prompt": "x"}',
        line(id=2, prompt="y"),
    ]

    assert fates_of(lines, recipe())[1] == "ok"
    assert "`custom_id` stands twice" in fates_of(lines, recipe())[0]


def test_rows_of_other_shapes_hide_no_row_with_two_prompts() -> None:
    messages = [{"role": "user", "content": "q"}]
    lines = [b'{"prompt": "a", "prompt": "b"}', line(messages=messages), line(prompt="c")]

    assert fates_of(lines, recipe()) == [PROMPT, "ok", "ok"]


COLUMNS = st.sampled_from(["id", "custom_id", "a", "b", "ab", "\u00e9", "x"])
VALUES = st.sampled_from(
    ['"t"', '"\\"a\\": "', "1", "null", '{"a": 1, "id": 2}', '["a", "id"]']
)
LINES = st.lists(
    st.tuples(
        st.lists(st.tuples(COLUMNS, VALUES), max_size=5),
        st.sampled_from([":", ": ", " : ", "\t:"]),
    ),
    min_size=1,
    max_size=8,
)


@given(LINES, st.sampled_from(["{a}", "{a}{b}", "{ab} {\u00e9}", "no columns"]))
def test_what_stands_twice_is_refused_and_nothing_else_for_it(
    drawn: list[tuple[Pairs, str]], prompt: str
) -> None:
    by = recipe(prompt=prompt, raw=True)
    used = {
        "id",
        "custom_id",
        *(name for name in ("a", "b", "ab", "\u00e9") if f"{{{name}}}" in prompt),
    }

    for _ in range(2):  # the second time the fast lane has learnt
        found = fates_of([text_of(*row) for row in drawn], by)

        for (pairs, _colon), said in zip(drawn, found, strict=True):
            names = [name for name, _ in pairs]
            is_twice = any(names.count(name) > 1 for name in used)
            assert ("stands twice" in said) <= is_twice
            if is_twice:
                assert said != "ok"


def test_a_carried_column_may_stand_twice() -> None:
    raw = b'{"prompt": "x", "note": 1, "note": 2, "meta": {"k": 1, "k": 2}}'

    assert ask(raw).text == "x"
    assert fates_of([raw] * 3, recipe()) == ["ok"] * 3


def test_keys_are_case_sensitive() -> None:
    assert ask(b'{"id": "a", "ID": "b", "Prompt": "upper", "prompt": "lower"}').text == "lower"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}', CONTENT),
        (b'{"messages": [{"role": "user", "content" : "a", "content": "b"}]}', CONTENT),
        (b'{"messages": [{"role": "user", "content": "a"}], "messages": []}', "unreadable: `messages` stands twice"),
        (b'{"prompt": "x", "temperature": 0, "temperature": 1}', "unreadable: `temperature` stands twice"),
        (b'{"prompt" : "x", "prompt": "y"}', PROMPT),
        (b'{"prompt": "x", "pro\\u006dpt": "y", "n": 1}', PROMPT),
    ],
)  # fmt: skip
def test_what_is_used_is_looked_into(raw: bytes, said: str) -> None:
    assert refusal(raw).startswith(said)
    assert refusal(raw, limits_of_wire()).startswith(said)


def limits_of_wire() -> Recipe:
    return recipe(WIRE)


def test_a_sampling_given_twice_is_refused() -> None:
    by = recipe(prompt="{a}")

    said = refusal(b'{"a": "x", "sampling": {"n": 1, "n": 2}}', by)
    assert said == "invalid: `sampling.n` is given twice, expected each key once"
    assert "`sampling` stands twice" in refusal(
        b'{"a": "x", "sampling": {}, "sampling": null}', by
    )


SCHEMA = '{"type": "object", "type": "array"}'
FORMAT = f'{{"type": "json_schema", "json_schema": {{"schema": {SCHEMA}}}}}'


@pytest.mark.parametrize(
    ("name", "value"),
    [("schema", SCHEMA), ("response_format", FORMAT), ("schema", SCHEMA.replace('":', '" :'))],
)
def test_an_object_of_sampling_is_looked_into(name: str, value: str) -> None:
    said = f"`{name}` has an object with the key `type` twice, expected each once"
    own = f'"{name}": {value}'

    for by in (recipe(), limits_of_wire()):
        for _ in range(2):
            assert said in refusal(f'{{"prompt": "x", {own}}}'.encode(), by)
            assert "`body." + said[1:] in refusal(batch(f'{{"prompt": "x", {own}}}'), by)
            ask(b'{"prompt": "x", "n": 2}', by)  # teaches the fast lane
    within = f'{{"a": "x", "sampling": {{{own}}}}}'.encode()
    assert "`sampling." + said[1:] in refusal(within, recipe(prompt="{a}"))
    assert "`sampling." + said[1:] in refusal(within, recipe(prompt_jinja="{{ a }}"))


def test_an_object_that_an_endpoint_is_sent_is_looked_into() -> None:
    def said_of(name: str, value: str, url: str = "/v1/completions") -> str:
        return refusal(
            batch(f'{{"prompt": "x", "input": "y", "{name}": {value}}}', url=url), wire
        )

    wire, twice = limits_of_wire(), '{"k": {"5": 1, "5": 2}}'
    inside = "has an object with the key `5` twice, expected each once"
    assert f"`body.logit_bias` {inside}" in said_of("logit_bias", twice)
    assert f"`body.more` {inside}" in said_of("more", f"[{twice}]", "/v1/responses")
    tools = '[{"type": "function", "function": {"name": "f"}}]'
    messages = '[{"role": "user", "content": "a"}]'
    raw = f'{{"messages": {messages}, "tools": {tools}, "tool_choice": {twice}}}'
    assert f"`tool_choice` {inside}" in refusal(raw.encode(), wire)


def test_a_text_with_a_colon_is_no_key() -> None:
    body = json.dumps({"input": ["a: b", 'with "quotes": c', "x"], "model": "m"})

    assert ask(batch(body, url="/v1/embeddings"), limits_of_wire()).wire == body.encode()


def batch(body: str, **outer: Any) -> bytes:
    head = json.dumps({"custom_id": "c", "method": "POST", "url": "/v1/completions", **outer})
    return f'{head[:-1]}, "body": {body}}}'.encode()


@pytest.mark.parametrize("prompt", ["plain", 'with "quotes": and "keys":1', "back\\slash\\"])
def test_batch_lines(prompt: str) -> None:
    by = recipe()
    good = batch(json.dumps({"prompt": prompt, "max_tokens": 5, "model": "m"}))

    for _ in range(2):
        assert ask(good, by).text == prompt
        for twice in ('"max_tokens": 5, "max_tokens": 6', '"max_tokens": 5, "max_tokens": 5'):
            body = f'{{"prompt": {json.dumps(prompt)}, {twice}}}'
            assert "`body.max_tokens` is given twice" in refusal(batch(body), by)
        body = f'{{"prompt": "p", "prompt": {json.dumps(prompt)}, "max_tokens": 5}}'
        assert "`body.prompt` is given twice" in refusal(batch(body), by)
        twice_url = good.replace(b'"method"', b'"url": "/v1/completions", "method"')
        assert "`url` stands twice" in refusal(twice_url, by)


def test_batch_lines_like_one_before_take_the_fast_lane() -> None:
    by = recipe()
    raw = batch('{"prompt": "say \\"a\\": b", "max_tokens": 5}')
    assert ask(raw, by) == ask(raw, by)

    lane = by.request._batch_lane  # type: ignore[attr-defined]

    assert lane.request(Row(7, raw)) is not None
    assert lane.request(Row(7, raw.replace(b'"max', b'"max_tokens": 5, "max'))) is None


def is_sure(lines: list[bytes], **job: Any) -> bool:
    """Whether a window is done without a look at each row."""
    by = recipe(raw=True, **job)
    ask(lines[0], by)
    return by.all_requests([Row(i, raw) for i, raw in enumerate(lines)])[1]


def test_texts_and_columns_that_end_like_a_key_cost_no_second_look() -> None:
    lines = [
        line(id=i, custom_id=None, question="which question", subquestion="question")
        for i in range(9)
    ]
    plain = [line(id=i, question="which question") for i in range(9)]

    assert is_sure(plain, prompt="{question}")
    assert not is_sure(lines, prompt="{question}")  # two columns may hold the id
    assert is_sure([one.replace(b"custom_id", b"other") for one in lines], prompt="{question}")
    assert is_sure([one.replace(b"question", b"prompt", 1) for one in plain])


def test_a_key_with_white_space_behind_it_has_all_rows_looked_at() -> None:
    plain = [line(id=i, question="a : b") for i in range(9)]

    assert is_sure(plain, prompt="{question}")
    for spaced in (b'" :', b'"  :', b'"\t:'):
        odd = [*plain, plain[0].replace(b'":', spaced)]
        assert not is_sure(odd, prompt="{question}")


BODIES = st.lists(
    st.tuples(
        st.sampled_from(["prompt", "max_tokens", "model", "pro\\u006dpt"]),
        st.sampled_from(['"t"', '"t\\"a\\": "', '"b :"', "5"]),
    ),
    max_size=3,
)
BATCH_LINES = st.lists(
    st.tuples(BODIES, st.sampled_from([":", ": ", " : ", "\t:"])), min_size=1, max_size=6
)


@given(BATCH_LINES)
def test_windows_of_batch_lines_are_what_their_lines_are_alone(
    drawn: list[tuple[Pairs, str]],
) -> None:
    good = batch('{"prompt": "t", "max_tokens": 5, "model": "m"}')
    lines = [good, good]
    for pairs, colon in drawn:
        inner = ", ".join(f'"{name}"{colon}{value}' for name, value in pairs)
        lines.append(batch('{"prompt": "t", "max_tokens": 5%s}' % (inner and ", " + inner)))
    by = recipe()

    for _ in range(2):  # the second time the fast lane has learnt
        assert fates_of(lines, by) == [fates_of([one], recipe())[0] for one in lines]


def test_batch_lines_that_are_all_alike_become_requests_at_once() -> None:
    by = recipe()
    lines = [batch(f'{{"prompt": "text {i}", "max_tokens": 5}}') for i in range(3000)]
    rows = [Row(i, raw) for i, raw in enumerate(lines)]
    twice = [*rows, Row(3000, lines[0].replace(b'"max', b'"max_tokens": 5, "max'))]
    spaced = [*twice, Row(3001, lines[0].replace(b'"prompt":', b'"prompt" :'))]
    assert by.requests(rows) is None
    ask(lines[0], by)

    assert by.requests(rows) == [by.request(row) for row in rows]
    assert by.requests(twice) is None
    assert by.requests(spaced) is None


def test_jinja_sees_what_its_columns_hold_twice() -> None:
    by = recipe(prompt_jinja="{{ a.k }} {{ b }}", raw=True)

    assert "`a` has an object with the key `k` twice" in refusal(
        b'{"a": {"k": 1, "k": 2}, "b": 1}', by
    )
    assert "`b` stands twice" in refusal(b'{"a": {"k": 1}, "b": 1, "b": 2}', by)
    assert ask(b'{"a": {"k": 1}, "b": 2, "c": 3, "c": 4}', by).text == "1 2"
    assert "unreadable: `a` is no UTF-8" in refusal(b'{"a": ["\xff\\":"], "b": 1}', by)
