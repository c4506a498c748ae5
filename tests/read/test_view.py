"""Rows of tables as JSON: the table of types in docs/rules.md, line by line."""

from __future__ import annotations

import base64
import decimal
import json
import uuid
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.read.view import ColumnsView
from rowmill.shown.values import unreadable_type
from tests.strategies import arrow_tables


def view_of(**columns: Any) -> ColumnsView:
    return ColumnsView(pa.RecordBatch.from_pydict(columns))


def shown(column: Any) -> list[str]:
    """JSON texts of a column."""
    return [line.decode()[len('{"c":') : -1] for line in view_of(c=column).lines()]


_PARTS: Any = (
    pa.array([1, 0], pa.int32()),
    pa.array([2, 2], pa.int32()),
    pa.array(["a", "b", "c"]),
)
LIST_VIEW = pa.ListViewArray.from_arrays(*_PARTS)
CASES: dict[str, tuple[Any, list[str]]] = {
    "null": (pa.nulls(1), ["null"]),
    "bool": (pa.array([True, None, False]), ["true", "null", "false"]),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), ["18446744073709551615", "null"]),
    "int64": (pa.array([-(2**63), 2**63 - 1]), ["-9223372036854775808", "9223372036854775807"]),
    "double": (
        pa.array([0.1, -0.0, 1e22, 5e-324, None]),
        ["0.1", "-0.0", "1e22", "5e-324", "null"],
    ),
    "no numbers": (
        pa.array([float("nan"), float("inf"), float("-inf"), None]),
        ['"NaN"', '"Infinity"', '"-Infinity"', "null"],
    ),
    "float": (
        pa.array([0.1, -0.0, 16777216, float("nan"), None], pa.float32()),
        ["0.1", "-0.0", "16777216.0", '"NaN"', "null"],
    ),
    "half": (
        pa.array([np.float16(0.1), np.float16("inf"), None]),
        ["0.1", '"Infinity"', "null"],
    ),
    "text": (pa.array(['"\u00e9\n', "", None]), ['"\\"\u00e9\\n"', '""', "null"]),
    "large text": (pa.array(["x"], pa.large_string()), ['"x"']),
    "text view": (pa.array(["x" * 20, None], pa.string_view()), [f'"{"x" * 20}"', "null"]),
    "dictionary": (pa.array(["x", None, "x"]).dictionary_encode(), ['"x"', "null", '"x"']),
    "decimal": (
        pa.array([decimal.Decimal("12345678901234567890.123"), None], pa.decimal128(38, 3)),
        ['"12345678901234567890.123"', "null"],
    ),
    "small decimal": (
        pa.array([decimal.Decimal("0E-10"), decimal.Decimal("-1E-10")], pa.decimal256(76, 10)),
        ['"0.0000000000"', '"-0.0000000001"'],
    ),
    "tens": (pa.array([decimal.Decimal("1.23E+5")], pa.decimal128(9, -3)), ['"123000"']),
    "binary": (pa.array([b"\x00\xff", b"", None]), ['"AP8="', '""', "null"]),
    "fixed binary": (pa.array([b"\xfb\xff\xfe"], pa.binary(3)), ['"+//+"']),
    "date": (pa.array([19_753, None], pa.date32()), ['"2024-01-31"', "null"]),
    "date64": (pa.array([-86_400_000], pa.int64()).view(pa.date64()), ['"1969-12-31"']),
    "time": (pa.array([1, None], pa.time64("ns")), ['"00:00:00.000000001"', "null"]),
    "timestamp": (
        pa.array([0, None], pa.timestamp("ms")),
        ['"1970-01-01T00:00:00.000"', "null"],
    ),
    "zone": (
        pa.array([1_711_848_600_123_456], pa.timestamp("us", "Europe/Rome")),
        ['"2024-03-31T01:30:00.123456Z"'],
    ),
    "duration": (pa.array([-1500, None], pa.duration("ms")), ['"-PT1.500S"', "null"]),
    "interval": (
        pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        ['"P1M2DT0.000000003S"', "null"],
    ),
    "list": (pa.array([[1, None], [], None]), ["[1,null]", "[]", "null"]),
    "fixed list": (
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
        ["[1,2]", "null", "[3,4]"],
    ),
    "list view": (
        LIST_VIEW,
        ['["b","c"]', '["a","b"]'],
    ),
    "struct": (pa.array([{"a": 1, "b": None}, None]), ['{"a":1,"b":null}', "null"]),
    "struct of nothing": (pa.array([{}, None], pa.struct([])), ["{}", "null"]),
    "struct of one name": (
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
        ['[["a",1],["a",2]]'],
    ),
    "map": (
        pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int64())),
        ['{"k":1,"l":null}', "{}", "null"],
    ),
    "map with a key twice": (
        pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        ['[["k",1],["k",2]]'],
    ),
    "map of numbers": (
        pa.array([[(1, "x")], []], pa.map_(pa.int64(), pa.string())),
        ['[[1,"x"]]', "[]"],
    ),
    "runs": (
        pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 5, 9], pa.int32()), pa.array(["a", None, "c"])
        ).slice(1, 5),
        ['"a"', "null", "null", "null", '"c"'],
    ),
    "dense union": (
        pa.UnionArray.from_dense(
            pa.array([1, 0, 1], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array(["x"]), pa.array([1, None])],
        ).slice(1),
        ['"x"', "null"],
    ),
    "sparse union": (
        pa.UnionArray.from_sparse(
            pa.array([0, 1, 0], pa.int8()), [pa.array(["x", "y", "z"]), pa.array([1, 2, 3])]
        ).slice(1),
        ["2", '"z"'],
    ),
    "uuid": (
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16))
        ),
        [f'"{uuid.UUID(bytes=bytes(range(16)))}"', "null"],
    ),
    "extension": (
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None])),
        ['"{\\"a\\":1}"', "null"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_type_has_its_text(name: str) -> None:
    column, texts = CASES[name]

    assert texts == shown(column)
    assert "" == unreadable_type(column.type)


@given(arrow_tables(max_rows=15), st.data())
def test_a_row_alone_is_the_row_among_others(
    batch: pa.RecordBatch, choice: st.DataObject
) -> None:
    view = ColumnsView(batch)
    asked = choice.draw(st.lists(st.integers(0, 14), max_size=20))
    asked = [at for at in asked if at < batch.num_rows]
    singly = [view.line(at) for at in asked]

    lines = ColumnsView(batch).lines()

    assert [lines[at] for at in asked] == singly
    assert batch.num_rows == len(lines)
    assert view.mean_bytes >= 0


@given(arrow_tables())
def test_lines_are_strict_json_and_no_key_stands_twice(batch: pa.RecordBatch) -> None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    for line in ColumnsView(batch).lines():
        row = json.loads(line, parse_constant=refuse, object_pairs_hook=once)
        assert batch.schema.names == list(row)
        assert b"\n" not in line
        assert row.keys() == msgspec.json.decode(line).keys()


@given(st.lists(st.floats(width=32)), st.lists(st.floats()))
def test_floats_read_back_as_they_were(singles: list[float], doubles: list[float]) -> None:
    for column in (pa.array(singles, pa.float32()), pa.array(doubles, pa.float64())):
        back = [float(json.loads(text)) for text in shown(column)]
        again = pa.array(back, pa.float64()).cast(column.type)
        assert str(column.to_pylist()) == str(again.to_pylist())


@given(st.lists(st.binary(max_size=9)))
def test_bytes_read_back_as_they_were(found: list[bytes]) -> None:
    texts = shown(pa.array(found, pa.large_binary()))

    assert found == [base64.b64decode(json.loads(text), validate=True) for text in texts]


@pytest.mark.parametrize(
    "names", [['"', "\\"], ["\n", ""], ["\u00e9", "\U0001f600"], ["class", "c d"]]
)
def test_columns_may_have_any_name(names: list[str]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=names)

    assert dict(zip(names, (1, 2), strict=True)) == json.loads(ColumnsView(batch).lines()[0])


def test_a_batch_without_columns_has_empty_objects() -> None:
    empty: Any = pa.array([{}, {}], pa.struct([]))
    batch = pa.RecordBatch.from_struct_array(empty)

    assert [b"{}", b"{}"] == ColumnsView(batch).lines()
    assert b"{}" == ColumnsView(batch).line(1)


def test_a_text_that_is_no_utf8_is_null_and_harms_no_neighbour() -> None:
    texts = pa.array([b"ok", b"\xff", b"\xed\xa0\x80", b"\xc3\xa9"]).view(pa.string())
    view = view_of(c=texts, n=[1, 2, 3, 4], l=pa.ListArray.from_arrays([0, 1, 2, 3, 4], texts))

    assert ["ok", None, None, "\u00e9"] == view.values("c")
    assert b'{"c":null,"n":2,"l":null}' == view.lines()[1]
    assert {"c": "\u00e9", "n": 4, "l": ["\u00e9"]} == json.loads(view.line(3))


def test_types_that_cannot_be_read_are_told() -> None:
    deep: Any = pa.int8()
    for _ in range(150):
        deep = pa.list_(deep)

    assert "nested deeper than 100 levels" == unreadable_type(deep)
    assert "" == unreadable_type(pa.struct([("a", pa.list_(pa.uuid()))]))
