"""Arrow values -> texts: exact ones, whatever the type."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from rowmill.write.value_text import json_texts, plain_texts

CASES: list[tuple[pa.DataType, Any, str, str]] = [
    (pa.string(), 'a"b', 'a"b', '"a\\"b"'),
    (pa.string(), "", "", '""'),
    (pa.uint64(), 2**64 - 1, "18446744073709551615", "18446744073709551615"),
    (pa.bool_(), True, "true", "true"),
    (pa.float64(), 0.1, "0.1", "0.1"),
    (pa.float64(), float("nan"), "NaN", '"NaN"'),
    (pa.float64(), float("-inf"), "-Infinity", '"-Infinity"'),
    (pa.decimal128(23, 3), decimal.Decimal("12345678901234567890.120"), "12345678901234567890.120", '"12345678901234567890.120"'),
    (pa.binary(), b"\x00\xff", "AP8=", '"AP8="'),
    (pa.date32(), dt.date(1, 1, 1), "0001-01-01", '"0001-01-01"'),
    (pa.timestamp("ns"), 1, "1970-01-01T00:00:00.000000001", '"1970-01-01T00:00:00.000000001"'),
    (pa.timestamp("s", "Europe/Rome"), 0, "1970-01-01T00:00:00Z", '"1970-01-01T00:00:00Z"'),
    (pa.time32("s"), 61, "00:01:01", '"00:01:01"'),
    (pa.duration("ms"), 5, "PT0.005S", '"PT0.005S"'),
    (pa.list_(pa.string()), ["x", None], '["x",null]', '["x",null]'),
    (pa.struct([("a", pa.int8()), ('"', pa.float64())]), {"a": 1, '"': None}, '{"a":1,"\\"":null}', '{"a":1,"\\"":null}'),
    (pa.map_(pa.string(), pa.int8()), [("k", 1)], '{"k":1}', '{"k":1}'),
    (pa.map_(pa.int8(), pa.int8()), [(1, 2)], "[[1,2]]", "[[1,2]]"),
    (
        pa.map_(pa.string(), pa.int8()),
        [("k", 1), ("k", 2)],
        '[["k",1],["k",2]]',
        '[["k",1],["k",2]]',
    ),
    (pa.dictionary(pa.int8(), pa.string()), "x", "x", '"x"'),
    (pa.list_(pa.list_(pa.binary())), [[b"x"], []], '[["eA=="],[]]', '[["eA=="],[]]'),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_each_type_has_its_text(number: int) -> None:
    type_, value, bare, quoted = CASES[number]
    array = pa.array([None, value, None, value], type_)[1:]

    assert plain_texts(array).to_pylist() == [bare, None, bare]
    assert json_texts(array).to_pylist() == [quoted, None, quoted]
