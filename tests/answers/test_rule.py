from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.answers import Finding, UnusableSchema, compile_schema, rule_of
from rowmill.rows import Sampling

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "score": {"type": "number"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def judged(sampling: Sampling, text: str, finish_reason: str = "stop") -> Finding:
    rule = rule_of(sampling)
    assert rule is not None
    return rule.judge(text, finish_reason)


def violation(schema: Any, text: str, finish_reason: str = "stop") -> str | None:
    found = judged(Sampling(schema=json.dumps(schema)), text, finish_reason)
    assert (bytes(found.parsed) == b"null") == (found.violation is not None or text == "null")
    return found.violation


def test_rows_that_are_held_to_nothing_have_no_rule() -> None:
    assert rule_of(Sampling(temperature=0.0, n=3)) is None


def test_the_value_keeps_its_digits_and_escapes_on_one_line() -> None:
    text = ' {"name": "\\u0041\\n",\n\t"score": 1.50 }\r\n'

    found = judged(Sampling(schema=json.dumps(PERSON)), text)

    assert bytes(found.parsed) == b'{"name":"\\u0041\\n","score":1.50}'
    assert found.violation is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "x", "age": "12"}', "/age: a string, expected an integer"),
        ('{"name": "x", "age": 1.5}', "/age: a number, expected an integer"),
        ('{"age": 1}', "answer: an object without `name`, expected that property"),
        ('{"name": "x", "tags": ["a", "c"]}', '/tags/1: a string, expected one of "a", "b"'),
        ('{"name": "x", "y": 1}', "answer: an object with a property that the schema does not name"),
        ("[1]", "answer: a list, expected an object"),
        ("null", "answer: null, expected an object"),
        ("", "answer: empty, expected JSON that follows the schema"),
        (" \n", "answer: empty, expected JSON that follows the schema"),
        ("Sure: {}", "answer: no JSON at byte 0, expected JSON alone that follows the schema"),
        ('{"name": "x"} done', "answer: no JSON at byte 15, expected JSON alone that follows the schema"),
        ('{"name": NaN}', "answer: no JSON at byte 9, expected JSON alone that follows the schema"),
        ('{"name": "x', "answer stops short (finish_reason stop)"),
        ('{"name": "x", "name": "y"}', "answer: an object with the property `name` twice"),
        ('{"name": "x", "n\\u0061me": "y"}', "answer: an object with the property `name` twice"),
        ('{"name": "x", "age": 9223372036854775808}', "/age: an integer, expected one that 64 bits hold exactly"),
        ('{"name": "x", "age": 1e19}', "/age: a number, expected one that 64 bits hold exactly"),
        ('{"name": "x", "score": 9007199254740993}', "/score: an integer, expected one that 64 bits hold exactly"),
        ('{"name": "x", "score": 1e999}', "answer: a number that no float holds, expected a smaller one"),
    ],
)  # fmt: skip
def test_a_violation_says_where_what_and_what_is_expected(text: str, expected: str) -> None:
    assert violation(PERSON, text) == expected


def test_an_answer_cut_by_a_limit_says_so() -> None:
    assert violation(PERSON, '{"name": "x', "length") == (
        "answer stops short (finish_reason length)"
    )
    # 12 may be what is left of 123.
    assert violation({"type": "integer"}, "12", "length") is not None
    assert violation({"type": "integer"}, "12", "stop") is None
    assert violation(PERSON, '{"name": "x"}', "length") is None


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"minimum": 18}, "3", "answer: an integer, expected 18 or more"),
        ({"exclusiveMaximum": 1.5}, "2.5", "answer: a number, expected less than 1.5"),
        ({"multipleOf": 5}, "3", "answer: an integer, expected a multiple of 5"),
        ({"minLength": 3}, '"a"', "answer: a string of 1 characters, expected 3 or more"),
        ({"maxItems": 1}, "[1, 2]", "answer: a list of 2 items, expected 1 or less"),
        ({"pattern": "^a+$"}, '"b"', "answer: a string, expected a match of `^a+$`"),
        ({"const": 3}, "4", "answer: an integer, expected 3"),
        ({"enum": list(range(99))}, "-1", "answer: an integer, expected one of the 99 values that the schema lists"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "1", "answer: an integer, expected a string or null"),
        ({"oneOf": [{"minimum": 3}, {"type": "null"}]}, "1", "answer: an integer, expected what `oneOf` allows"),
        ({"properties": {"a/b": False}}, '{"a/b": true}', "/a~1b: a boolean, expected nothing there"),
        ({"uniqueItems": True}, "[1, 1]", "answer: a list, expected what `uniqueItems` allows"),
    ],
)  # fmt: skip
def test_each_keyword_has_its_words(schema: Any, text: str, expected: str) -> None:
    assert violation(schema, text) == expected


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(NAMES, st.text("\x07", min_size=12))
def test_a_sentence_is_one_line_without_the_answer_s_text(name: str, secret: str) -> None:
    text = json.dumps({"a": {name: secret}})
    schema = {"properties": {"a": {"additionalProperties": {"type": "integer"}}}}

    found = violation(schema, text)

    assert found is not None
    assert found.isprintable()
    assert secret not in found
    assert found.endswith("a string, expected an integer")
    assert len(found) < 400


@pytest.mark.parametrize("depth", [200, 300, 900, 30_000, 200_000])
def test_deep_answers_are_violations_and_no_crash(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        found = judged(Sampling(schema='{"type": ["array", "object"]}'), text)
        assert bool(found.violation) == (bytes(found.parsed) == b"null")
        assert ("nested too deeply" in (found.violation or "")) == (depth > 200)


def test_a_flat_answer_of_many_brackets_is_not_deep() -> None:
    text = json.dumps([{"a": "]]]" * 9, "b": []}] * 500)

    assert violation({"type": "array"}, text) is None


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
), st.booleans())  # fmt: skip
def test_every_json_answer_without_a_limit_is_parsed_as_it_is(
    value: Any, is_ascii: bool
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1)

    found = judged(Sampling(schema="{}"), text)

    assert found.violation is None
    assert json.loads(bytes(found.parsed)) == value
    assert b"\n" not in bytes(found.parsed)


def test_an_answer_must_match_the_whole_expression() -> None:
    sampling = Sampling(regex="[a-z]+|yes, [0-9]")

    assert judged(sampling, "abc") == Finding()
    assert judged(sampling, "yes, 1") == Finding()
    for text in ("abc ", "abc\n", "1abc", ""):
        assert (
            judged(sampling, text).violation == "answer: a string, expected a match of `regex`"
        )
    assert "finish_reason length" in (judged(sampling, "yes,", "length").violation or "")


def test_an_expression_that_backtracks_without_end_is_judged_at_once() -> None:
    began = time.monotonic()

    for regex in ("(a+)+b", r"(a+)+\1b", "(?=a)(a|aa)+b"):
        judged(Sampling(regex=regex), "a" * 2000)

    assert time.monotonic() - began < 5


def test_an_expression_of_another_dialect_is_the_engine_s_to_judge() -> None:
    assert judged(Sampling(regex=r"(?(1)a|b)\Q"), "anything") == Finding()


def test_an_answer_is_one_of_the_choices() -> None:
    sampling = Sampling(choices=("yes", "no"))

    assert judged(sampling, "yes") == Finding()
    assert (
        judged(sampling, "Yes").violation == "answer: a string, expected one of the 2 `choices`"
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "https://example.com/a.json"}, "refers to something that is not in it"),
        ({"$ref": "file:///etc/passwd"}, "refers to something that is not in it"),
        ({"properties": {"a": {"pattern": "(?<"}}}, "has at `/properties/a/pattern` what is no regular"),
        ({"properties": {"a": {"type": "text"}}}, "breaks JSON Schema's own rule"),
        ({"$schema": "http://nowhere.example/"}, "refers to something that is not in it"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_compiled_says_why(schema: Any, words: str) -> None:
    with pytest.raises(UnusableSchema, match=words) as caught:
        compile_schema(schema)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"items": [{"type": "string"}]},
        {"exclusiveMaximum": True, "maximum": 5},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"},
        {"format": "date", "type": "string"},
        {"pattern": r"\p{L}+(?<=a)"},
    ],
)
def test_older_dialects_are_read_as_well(schema: Any) -> None:
    assert compile_schema(schema).is_valid(msgspec.json.decode('"a"')) is True


def test_format_is_an_annotation() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}

    assert violation(schema, '"no date"') is None
