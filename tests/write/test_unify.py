"""Schemas that drift -> one that holds every value of each file."""

from __future__ import annotations

import decimal
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.write.kinds import JSON_MARK, is_marked
from rowmill.write.unify import fit, unify
from rowmill.write.widen import widest
from tests.write.drawn import TYPES, arrow_batches

DRIFT = {
    "null and any": ([pa.null(), pa.list_(pa.int8())], pa.list_(pa.int8())),
    "signed": ([pa.int32(), pa.int64()], pa.int64()),
    "signed and unsigned": ([pa.int8(), pa.uint16()], pa.int32()),
    "no integer holds both": ([pa.int64(), pa.uint64()], pa.decimal128(20, 0)),
    "three integers": ([pa.uint64(), pa.int8(), pa.int64()], pa.decimal128(20, 0)),
    "texts": ([pa.string(), pa.large_string()], pa.large_string()),
    "dictionary": ([pa.dictionary(pa.int8(), pa.string()), pa.string()], pa.string()),
    "dictionaries": (
        [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())],
        pa.string(),
    ),
    "bytes": ([pa.binary(), pa.binary(3)], pa.large_binary()),
    "floats": ([pa.float32(), pa.float64(), pa.float16()], pa.float64()),
    "short integer and float": ([pa.int32(), pa.float32()], pa.float64()),
    "long integer and float": ([pa.int64(), pa.float64()], None),
    "decimals": ([pa.decimal128(5, 2), pa.decimal128(10, 4)], pa.decimal128(10, 4)),
    "decimal and integer": ([pa.decimal128(5, 2), pa.int32()], pa.decimal128(12, 2)),
    "decimals too long": ([pa.decimal128(38, 0), pa.decimal128(38, 38)], None),
    "text and number": ([pa.string(), pa.int64()], None),
    "times of another unit": ([pa.timestamp("us"), pa.timestamp("ns")], None),
    "lists": ([pa.list_(pa.int8()), pa.large_list(pa.int32())], pa.large_list(pa.int32())),
    "lists of other things": ([pa.list_(pa.int8()), pa.list_(pa.string())], None),
    "structs": (
        [pa.struct([("a", pa.int8())]), pa.struct([("b", pa.string()), ("a", pa.int16())])],
        pa.struct([("a", pa.int16()), ("b", pa.string())]),
    ),
    "maps": (
        [pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64())],
        pa.map_(pa.string(), pa.int64()),
    ),
}


@pytest.mark.parametrize("name", DRIFT)
def test_the_narrowest_type_that_holds_all_is_taken(name: str) -> None:
    types, wanted = DRIFT[name]

    assert widest(types) == wanted
    if name != "structs":
        assert widest(types[::-1]) == wanted


@given(batch=arrow_batches(), others=st.lists(st.tuples(st.just("c"), TYPES), max_size=2))
def test_a_schema_that_all_share_stays_as_it_is(batch: pa.RecordBatch, others: Any) -> None:
    schema, notes = unify([batch.schema] * (1 + len(others)))

    assert schema.equals(batch.schema, check_metadata=True)
    assert notes == []
    assert fit(batch, schema) is batch


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, None, -128]),
    (pa.uint64(), [2**64 - 1, None, 0]),
    (pa.int64(), [-(2**63), 5, None]),
    (pa.float32(), [0.5, None, -0.0]),
    (pa.float64(), [1e300, 0.1, None]),
    (pa.string(), ["a", "", None]),
    (pa.large_string(), ["b", None, '"']),
    (pa.bool_(), [True, None, False]),
    (pa.decimal128(5, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("-0.01")]),
    (pa.list_(pa.int8()), [[1, None], [], None]),
    (pa.list_(pa.int64()), [[2**40], None, [None]]),
    (pa.large_list(pa.struct([("a", pa.int8())])), [[{"a": 1}, None], None, []]),
    (pa.list_(pa.struct([("b", pa.string()), ("a", pa.int32())])), [[{"b": "x", "a": 1}], [], None]),
    (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int8()))]), [{"a": 1, "b": [2]}, None, {"a": None, "b": None}]),
    (pa.struct([("b", pa.list_(pa.int32())), ("c", pa.string())]), [None, {"b": [None], "c": "x"}, {"b": [], "c": None}]),
    (pa.map_(pa.string(), pa.int8()), [[("k", 1)], None, []]),
    (pa.map_(pa.string(), pa.int64()), [[("k", None), ("l", 2)], [], None]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y"]),
    (pa.null(), [None, None, None]),
]  # fmt: skip


@given(
    picked=st.lists(st.sampled_from(VALUES), min_size=2, max_size=3),
    first=st.integers(0, 2),
    stop=st.integers(0, 3),
)
def test_no_value_changes_under_the_unified_schema(
    picked: list[tuple[pa.DataType, list[Any]]], first: int, stop: int
) -> None:
    arrays = [pa.array(values, type_) for type_, values in picked]
    batches = [
        pa.record_batch({"c": array}).slice(first, max(stop - first, 0)) for array in arrays
    ]
    schema, notes = unify([batch.schema for batch in batches])
    field = schema.field("c")

    for batch in batches:
        fitted = fit(batch, schema)
        fitted.validate(full=True)
        before, after = batch.column("c").to_pylist(), fitted.column("c").to_pylist()
        for old, new in zip(before, after, strict=True):
            if is_marked(field):
                assert same(json.loads(new) if new is not None else None, plain(old))
            elif isinstance(new, str) and not isinstance(old, str):
                assert new == (json.dumps(old) if isinstance(old, bool) else spelled(old))
            else:
                assert same(new, old)
    assert bool(notes) == any(b.schema.field("c").type != field.type for b in batches)


def spelled(value: Any) -> str:
    if isinstance(value, float):
        return msgspec.json.encode(value).decode()
    return format(value, "f") if isinstance(value, decimal.Decimal) else repr(value)


def plain(value: Any) -> Any:
    """As JSON has it: decimals are texts, maps objects."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list) and value and all(isinstance(v, tuple) for v in value):
        return dict(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, decimal.Decimal) else value


def same(new: Any, old: Any) -> bool:
    """Equal, fields that a struct did not have being null."""
    if new == {} and old == []:
        return True  # a map without keys
    if isinstance(new, dict) and isinstance(old, dict):
        return all(same(v, old.get(k)) for k, v in new.items()) and old.keys() <= new.keys()
    if isinstance(new, list | tuple) and isinstance(old, list | tuple):
        return len(new) == len(old) and all(map(same, new, old))
    return bool(new == old)


def test_absent_columns_are_null_and_new_ones_come_behind() -> None:
    first = pa.record_batch({"a": [1], "b": ["x"]})
    second = pa.record_batch({"c": [True], "a": pa.array([2], pa.int8())})

    schema, notes = unify([first.schema, second.schema])

    assert schema.names == ["a", "b", "c"]
    assert fit(second, schema).to_pylist() == [{"a": 2, "b": None, "c": True}]
    assert notes == [
        "column `a` is `int64`, `int8` in different files; results hold it as `int64`"
    ]


def test_a_column_of_json_text_makes_json_text_of_the_others() -> None:
    marked = pa.schema([pa.field("c", pa.string(), metadata=JSON_MARK)])
    plain_text = pa.record_batch({"c": ["x", None]})

    schema, _ = unify([marked, plain_text.schema])

    assert is_marked(schema.field("c"))
    assert fit(plain_text, schema)["c"].to_pylist() == ['"x"', None]


def test_metadata_stays_where_all_files_agree() -> None:
    one = pa.schema(
        [pa.field("a", pa.int8(), metadata={"u": "m", "v": "1"})], {"k": "1", "l": "2"}
    )
    two = pa.schema([pa.field("a", pa.int64(), metadata={"u": "m"})], {"k": "1", "l": "3"})

    schema, _ = unify([one, two])

    assert schema.metadata == {b"k": b"1"}
    assert schema.field("a").metadata == {b"u": b"m"}
