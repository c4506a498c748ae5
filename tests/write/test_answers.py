from __future__ import annotations

import io
import json
from typing import Any

import jsonschema_rs
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rowmill.answers import rule_of
from rowmill.answers.shape import MORE
from rowmill.rows import Sampling
from rowmill.write.answers import MARK, columns_of_schema, parsed_array

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.sampled_from(["a", "b", "name", "x.y", "", "rowmill_text", MORE, "A", 'q"', "\0"])
WHOLE = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1, 2**63, 10**30]),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), WHOLE, FLOATS, TEXTS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
Pair = tuple[dict[str, Any], st.SearchStrategy[Any]]
"""A schema, and values of which most follow it."""


def leaves() -> st.SearchStrategy[Pair]:
    """Schemas without parts."""
    texts = st.lists(TEXTS, min_size=1, max_size=3, unique=True)
    mixed = st.lists(SCALARS, min_size=1, max_size=3)
    whole: Pair = ({"type": "integer"}, WHOLE | WHOLE.map(float_of))
    fixed: list[Pair] = [
        ({"type": "string"}, TEXTS),
        whole,
        ({"type": "number"}, WHOLE | FLOATS),
        ({"type": "boolean"}, st.booleans()),
        ({"type": ["integer", "null"]}, st.none() | WHOLE),
        ({"type": ["integer", "string"]}, TEXTS | WHOLE),
        ({"type": "integer", "maximum": 2**64}, WHOLE),
        ({"type": "null"}, st.none()),
        ({"type": "object"}, st.dictionaries(NAMES, JSON, max_size=2)),
        ({"type": "array"}, st.lists(JSON, max_size=2)),
        ({}, JSON),
        ({"minLength": 1}, JSON),
    ]
    return st.one_of(
        st.sampled_from(fixed),
        texts.map(lambda v: ({"enum": v}, st.sampled_from(v))),
        mixed.map(lambda v: ({"enum": v}, st.sampled_from(v))),
        SCALARS.map(lambda v: ({"const": v}, st.just(v))),
    )


def float_of(number: int) -> Any:
    return float(number) if abs(number) < 2**60 else number


def wider(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Schemas of schemas."""
    return st.one_of(
        inner.map(lambda p: ({"type": "array", "items": p[0]}, st.lists(p[1], max_size=3))),
        inner.map(lambda p: ({"anyOf": [p[0], {"type": "null"}]}, p[1] | st.none())),
        inner.map(lambda p: ({"allOf": [p[0], {}], "title": "t"}, p[1])),
        st.tuples(inner, inner).map(
            lambda p: ({"oneOf": [p[0][0], p[1][0]]}, p[0][1] | p[1][1])
        ),
        objects(inner),
    )


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Pair]) -> Pair:
    parts = draw(st.dictionaries(NAMES, inner, max_size=4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in parts.items()},
        "required": draw(st.lists(st.sampled_from(sorted(parts)), unique=True))
        if parts
        else [],
    }
    more = draw(st.sampled_from([None, True, False, {"type": "integer"}]))
    if more is not None:
        schema["additionalProperties"] = more
    known = st.fixed_dictionaries({}, optional={n: values for n, (_, values) in parts.items()})
    others = st.just({}) if more is False else st.dictionaries(NAMES, WHOLE, max_size=1)
    return schema, st.builds(lambda some, rest: {**rest, **some}, known, others)


INNER = st.recursive(leaves(), wider, max_leaves=4)
PAIRS = st.one_of(INNER, objects(INNER), objects(objects(INNER)))


def values_and_schema(pair: Pair) -> st.SearchStrategy[tuple[dict[str, Any], list[Any]]]:
    return st.tuples(st.just(pair[0]), st.lists(pair[1] | JSON, min_size=1, max_size=6))


def read_back(value: Any, field: pa.Field[Any]) -> Any:
    """A value of a column as the JSON value that it was."""
    mark = (field.metadata or {}).get(MARK)
    if value is None:
        return None
    if mark:
        return json.loads(value)
    if pa.types.is_list(field.type):
        return [read_back(part, field.type.value_field) for part in value]
    if pa.types.is_struct(field.type):
        found = {inner.name: read_back(value[inner.name], inner) for inner in field.type}
        marks = [(inner.metadata or {}).get(MARK) for inner in field.type]
        if b"other properties" in marks:
            found.update(found.pop(MORE) or {})
        return found
    return value


def without_nulls(value: Any) -> Any:
    """Absent and null properties are one."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def parsed_by(schema: dict[str, Any], values: list[Any]) -> list[bytes | None]:
    """What a run's outcomes hold of such answers."""
    rule = rule_of(Sampling(schema=json.dumps(schema)))
    assert rule is not None
    return [bytes(rule.judge(json.dumps(v), "stop").parsed) for v in values]


@settings(max_examples=150)
@given(PAIRS.flatmap(values_and_schema))
def test_every_answer_that_follows_its_schema_comes_back_as_it_was(
    drawn: tuple[dict[str, Any], list[Any]],
) -> None:
    schema, values = drawn
    field = columns_of_schema(schema, "rowmill_").field(0)
    parsed = parsed_by(schema, values)
    kept = [v for v, p in zip(values, parsed, strict=True) if p != b"null"]
    assume(kept)

    column = parsed_array(parsed, field)

    assert column.type == field.type
    found = [
        read_back(v, field)
        for v, p in zip(column.to_pylist(), parsed, strict=True)
        if p != b"null"
    ]
    assert [without_nulls(v) for v in found] == [without_nulls(v) for v in kept]


@settings(max_examples=150)
@given(PAIRS.flatmap(values_and_schema))
def test_what_follows_its_schema_and_is_refused_is_a_number_past_64_bits(
    drawn: tuple[dict[str, Any], list[Any]],
) -> None:
    schema, values = drawn
    rule = rule_of(Sampling(schema=json.dumps(schema)))
    assert rule is not None
    validator = jsonschema_rs.Draft202012Validator(schema)

    for value in values:
        found = rule.judge(json.dumps(value), "stop")
        if validator.is_valid(value):
            assert found.violation is None or "64 bits" in found.violation
        else:
            assert found.violation is not None


@settings(max_examples=40)
@given(PAIRS.flatmap(values_and_schema))
def test_a_column_survives_parquet(drawn: tuple[dict[str, Any], list[Any]]) -> None:
    schema, values = drawn
    columns = columns_of_schema(schema, "rowmill_")
    table = pa.table(
        [parsed_array(parsed_by(schema, values), columns.field(0))], schema=columns
    )
    file = io.BytesIO()

    pq.write_table(table, file)

    assert pq.read_table(file).to_pylist() == table.to_pylist()


PERSON = {
    "$defs": {"tag": {"type": "string"}},
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "score": {"type": "number"},
        "mood": {"enum": ["good", "bad"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "any": {},
    },
    "additionalProperties": False,
}


def test_a_schema_of_fixed_properties_is_a_struct() -> None:
    (field,) = columns_of_schema(PERSON, "my_")

    assert field.name == "my_parsed"
    assert [(inner.name, str(inner.type), inner.nullable) for inner in field.type] == [
        ("name", "string", True),
        ("age", "int64", True),
        ("score", "double", True),
        ("mood", "string", True),
        ("tags", "list<item: string>", True),
        ("any", "string", True),
    ]
    assert [inner.name for inner in field.type if inner.metadata] == ["any"]


def test_values_of_a_struct() -> None:
    (field,) = columns_of_schema(PERSON, "")
    answer = b'{"name":"a","age":1.0,"score":2,"tags":["x"],"any":{"k":[1]}}'

    column = parsed_array([answer, None, b"null"], field)

    expected = {"name": "a", "age": 1, "score": 2.0, "mood": None, "tags": ["x"]}
    assert column.to_pylist() == [{**expected, "any": '{"k":[1]}'}, None, None]


def test_properties_that_a_schema_allows_and_does_not_name_are_kept_as_json() -> None:
    (field,) = columns_of_schema(
        {"type": "object", "properties": {"a": {"type": "string"}}}, ""
    )

    column = parsed_array([b'{"a":"x","b":[1.5],"c":null}', b'{"a":"y"}'], field)

    more = '{"b":[1.5],"c":null}'
    assert column.to_pylist() == [{"a": "x", MORE: more}, {"a": "y", MORE: None}]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": False},
        {"properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {MORE: {"type": "string"}}},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        {"type": "integer", "maximum": 2**63},
        {"enum": [2**64]},
        {"enum": [1, "a"]},
        {"$ref": "#"},
        {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}},
        {"type": "null"},
        {"type": "object", "properties": {str(i): {"type": "string"} for i in range(600)}},
    ],
)
def test_a_schema_without_one_fixed_type_is_json_text(schema: Any) -> None:
    (field,) = columns_of_schema(schema, "")
    assert (field.type, field.metadata) == (pa.string(), {MARK: b"1"})

    assert parsed_array([b'{"a":1.50}', None, b"null"], field).to_pylist() == [
        '{"a":1.50}',
        None,
        None,
    ]


def test_a_recursive_schema_is_a_struct_down_to_where_it_repeats() -> None:
    node = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
        "additionalProperties": False,
    }
    (field,) = columns_of_schema({"$defs": {"node": node}, "$ref": "#/$defs/node"}, "")

    column = parsed_array([b'{"v":1,"next":{"v":2,"next":null}}'], field)

    assert column.to_pylist() == [{"v": 1, "next": '{"v":2,"next":null}'}]


def test_references_that_multiply_end_as_json_text() -> None:
    laughs: dict[str, Any] = {"d0": {"type": "string"}}
    for i in range(1, 40):
        parts = {name: {"$ref": f"#/$defs/d{i - 1}"} for name in "ab"}
        laughs[f"d{i}"] = {"type": "object", "properties": parts}

    (field,) = columns_of_schema({"$defs": laughs, "$ref": "#/$defs/d39"}, "")

    assert field.type == pa.string()


def test_numbers_of_64_bits_are_exact() -> None:
    (field,) = columns_of_schema({"type": "integer"}, "")
    numbers = [2**63 - 1, -(2**63), 0]

    column = parsed_array([msgspec.json.encode(n) for n in numbers], field)

    assert column.to_pylist() == numbers
