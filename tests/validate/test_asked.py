from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import ConfigError
from rowmill.rows import Limits, Sampling
from rowmill.validate.asked import CHECKS
from rowmill.validate.schemas import is_balanced, schema_mistake
from tests.validate.rows_of import ALL, WIRE, ask, line, recipe, refusal


def asked(**columns: Any) -> Sampling:
    return ask(line(prompt="a", **columns)).sampling


@pytest.mark.parametrize(
    ("column", "value", "field", "expected"),
    [
        ("temperature", 0, "temperature", 0.0),
        ("temperature", 7.5, "temperature", 7.5),
        ("top_p", 1, "top_p", 1.0),
        ("top_k", -1, "top_k", -1),
        ("min_p", 0, "min_p", 0.0),
        ("max_tokens", 64.0, "max_tokens", 64),
        ("max_completion_tokens", 3, "max_tokens", 3),
        ("n", 2, "n", 2),
        ("stop", "x", "stop", ("x",)),
        ("stop", ["x", "y"], "stop", ("x", "y")),
        ("seed", -5, "seed", -5),
        ("presence_penalty", -2, "presence_penalty", -2.0),
        ("repetition_penalty", 1.1, "repetition_penalty", 1.1),
        ("logprobs", True, "logprobs", 0),
        ("logprobs", False, "logprobs", None),
        ("logprobs", 3, "logprobs", 3),
        ("top_logprobs", 5, "logprobs", 5),
        ("choices", ["a", "b"], "choices", ("a", "b")),
        ("schema", {"type": "object"}, "schema", '{"type": "object"}'),
        ("regex", "[a-z]+", "regex", "[a-z]+"),
        ("response_format", {"type": "text"}, "schema", ""),
        ("response_format", {"type": "json_object"}, "schema", '{"type": "object"}'),
        ("ignore_eos", True, "ignore_eos", True),
        ("return_token_ids", True, "return_token_ids", True),
        ("lora", "mine", "lora", "mine"),
        ("lora", "", "lora", ""),
    ],
)
def test_a_row_asks_for_its_own_sampling(
    column: str, value: Any, field: str, expected: Any
) -> None:
    assert getattr(asked(**{column: value}), field) == expected


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("temperature", -0.1, "`temperature` is -0.1, expected a number of 0 or more"),
        ("temperature", True, "`temperature` is a boolean"),
        ("lora", 3, "`lora` is a number, expected an adapter's name"),
        ("temperature", "0", "`temperature` is a string"),
        ("top_p", 0, "`top_p` is 0, expected a number above 0 and up to 1"),
        ("top_p", 1.01, "`top_p` is 1.01"),
        ("min_p", 2, "`min_p` is 2"),
        ("max_tokens", 0, "`max_tokens` is 0, expected a whole number of 1 or more"),
        ("max_tokens", 1.5, "`max_tokens` is 1.5"),
        ("max_tokens", True, "`max_tokens` is a boolean"),
        ("max_tokens", 10**30, "`max_tokens` is a number, expected a whole number"),
        ("n", 0, "`n` is 0"),
        ("stop", [""], "`stop[0]` is an empty string"),
        ("stop", 5, "`stop` is a number"),
        ("seed", 2**63, "`seed` is a number"),
        ("repetition_penalty", 0, "`repetition_penalty` is 0, expected a number above 0"),
        ("logprobs", -1, "`logprobs` is -1, expected a whole number from 0 to 1000"),
        ("choices", [], "`choices` is an empty list"),
        ("choices", ["a", 1], "`choices[1]` is a number"),
        ("choices", "ab", "`choices` is a string"),
        ("schema", "{}", "`schema` is a string, expected a JSON Schema object"),
        ("schema", {"type": "thing"}, "`schema.type` is unknown"),
        ("regex", "", "`regex` is an empty string"),
        ("regex", "(a", "`regex` is a string with an open bracket"),
        ("response_format", "json", "`response_format` is a string"),
        ("response_format", {"type": "json"}, "`response_format.type` is `json`"),
        ("response_format", {"type": "json_schema"}, "`response_format.json_schema` is null"),
        ("ignore_eos", 1, "`ignore_eos` is a number, expected true or false"),
    ],
)
def test_a_wrong_value_names_field_found_and_expected(
    column: str, value: Any, said: str
) -> None:
    assert refusal(line(prompt="a", **{column: value})).startswith(f"invalid: {said}")


@given(
    st.sampled_from(sorted(CHECKS)),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.lists(st.text(), max_size=2)
    | st.just({}),
)
def test_any_value_of_any_key_is_taken_or_refused(column: str, value: Any) -> None:
    by = recipe()
    raw = line(prompt="a", **{column: value})
    try:
        request = ask(raw, by)
    except Exception as error:
        assert f"`{column}" in str(error)  # noqa: PT017 - either end is right
        assert type(error).__name__ == "InvalidRow"  # noqa: PT017
    else:
        assert request.text == "a"


def test_null_asks_for_nothing() -> None:
    assert ask(line(prompt="a", **dict.fromkeys(CHECKS))).sampling == Sampling()


def test_a_row_comes_before_the_job() -> None:
    by = recipe(sampling={"temperature": 0, "max_tokens": 8, "schema": {"type": "object"}})

    assert ask(line(prompt="a"), by).sampling.max_tokens == 8
    own = ask(line(prompt="a", max_tokens=9, choices=["x"]), by).sampling
    assert (own.temperature, own.max_tokens, own.choices, own.schema) == (0, 9, ("x",), "")


def test_what_a_row_takes_off_is_off() -> None:
    job = {"schema": {"type": "object"}, "logprobs": 3, "seed": 1, "seed_per_row": True}
    by = recipe(sampling=job)
    free = {"response_format": {"type": "text"}}

    def own(**columns: Any) -> Sampling:
        return ask(line(prompt="a", **columns), by).sampling

    assert own(**free).schema == ""
    assert own(**free, choices=["x"]).choices == ("x",)
    assert own(**free, regex="x").regex == "x"
    assert own(**free, regex="x").schema == ""
    assert own(logprobs=False).logprobs is None
    assert own(logprobs=False, top_logprobs=0).logprobs is None
    assert own(logprobs=True, top_logprobs=2).logprobs == 2
    assert own(n=2).logprobs == 3
    assert (own(seed=7).seed, own(seed=7).seed_per_row) == (7, False)
    assert own(n=2).seed_per_row


def test_a_row_that_wants_none_and_some_log_probabilities_is_refused() -> None:
    said = refusal(line(prompt="a", logprobs=False, top_logprobs=5))

    assert said == "invalid: `logprobs` is false and `top_logprobs` is 5; keep one"


def test_rows_that_ask_alike_share_one_object() -> None:
    by = recipe()
    rows = [ask(line(prompt=text, max_tokens=5), by) for text in "ab"]

    assert rows[0].sampling is rows[1].sampling
    assert ask(line(prompt="a"), by).sampling is ask(line(prompt="b"), by).sampling


def test_two_keys_for_one_thing_must_agree() -> None:
    assert asked(max_tokens=5, max_completion_tokens=5).max_tokens == 5
    assert "differ" in refusal(line(prompt="a", max_tokens=5, max_completion_tokens=6))
    assert "exclude each other" in refusal(line(prompt="a", choices=["x"], regex="x"))
    both = line(prompt="a", schema={}, response_format={"type": "json_object"})
    assert "`schema` and `response_format` exclude each other" in refusal(both)


def test_what_the_engine_cannot_do_is_refused_and_never_ignored() -> None:
    poor = Limits(sampling=("n",))
    by = recipe(poor)

    assert ask(line(prompt="a", n=2, seed=1, stop="x"), by).sampling.n == 2
    assert "`top_k`: this engine cannot do it; it takes `max_tokens`, `n`" in refusal(
        line(prompt="a", top_k=5), by
    )
    assert ask(line(prompt="a", ignore_eos=False), by)
    with pytest.raises(ConfigError, match=r"`sampling.regex`, `sampling.extra`: this engine"):
        recipe(poor, sampling={"regex": "a", "extra": {"x": 1}})


def test_row_may_answer_without_the_job_s_adapter() -> None:
    by = recipe(ALL, sampling={"lora": "mine"})

    assert ["mine", "", "other"] == [
        ask(line(prompt="a", **own), by).sampling.lora
        for own in ({}, {"lora": ""}, {"lora": "other"})
    ]


def test_extra_is_for_endpoints() -> None:
    by = recipe(WIRE, sampling={"extra": {"x": 1}})

    assert json.loads(ask(line(prompt="a"), by).sampling.extra) == {"x": 1}
    with pytest.raises(ConfigError, match=r"`sampling.extra`"):
        recipe(ALL, sampling={"extra": {"x": 1}})


@pytest.mark.parametrize(
    "sampling",
    [{"schema": {"type": "thing"}}, {"regex": "(a"}, {"choices": ["a", ""]}],
)
def test_a_wrong_constraint_of_the_job_is_a_config_error(sampling: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        recipe(sampling=sampling)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": ["string", "null"], "pattern": r"^[(\]]\)$"},
        {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        {"items": [{"type": "string"}], "minItems": 1},
        {"type": "integer", "minimum": 5, "maximum": 1},
        {"enum": [1, None], "const": 5, "$ref": "#"},
        {"exclusiveMinimum": True, "minimum": 1, "anyOf": [{}]},
        {"definitions": {"a/b": {}}, "$ref": "#/definitions/a~1b"},
        {"allOf": [{}], "$ref": "#/allOf/0"},
    ],
)
def test_a_schema_of_known_words_passes(schema: Any) -> None:
    assert schema_mistake(schema) == ""


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ([], "schema"),
        ({"type": 5}, "schema.type"),
        ({"properties": []}, "schema.properties"),
        ({"properties": {"a": {"type": "x"}}}, "schema.properties.*.type"),
        ({"items": {"type": "x"}}, "schema.items.type"),
        ({"anyOf": []}, "schema.anyOf"),
        ({"anyOf": [{}, 5]}, "schema.anyOf[1]"),
        ({"required": "a"}, "schema.required"),
        ({"enum": []}, "schema.enum"),
        ({"pattern": "(a"}, "schema.pattern"),
        ({"pattern": 5}, "schema.pattern"),
        ({"minLength": -1}, "schema.minLength"),
        ({"minLength": True}, "schema.minLength"),
        ({"maximum": "5"}, "schema.maximum"),
        ({"$ref": "#/$defs/no"}, "schema.$ref"),
        ({"$ref": "#/anyOf/7", "anyOf": [{}]}, "schema.$ref"),
        ({"additionalProperties": 5}, "schema.additionalProperties"),
    ],
)
def test_a_mistake_in_a_schema_is_named_by_its_path(schema: Any, where: str) -> None:
    assert schema_mistake(schema).startswith(f"`{where}` ")


def test_a_schema_without_end_is_a_mistake_and_no_crash() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"not": schema}

    assert "nested too deeply" in schema_mistake(schema)


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "a\\", "(?:a", "[(", ")("])
def test_an_open_bracket_is_seen(pattern: str) -> None:
    assert not is_balanced(pattern)


@pytest.mark.parametrize("pattern", ["", "(a|b)*", r"\(", "[(]", r"[\]]", r"(?<n>a)", "a{2,}"])
def test_brackets_that_are_closed_or_escaped_pass(pattern: str) -> None:
    assert is_balanced(pattern)
