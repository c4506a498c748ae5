"""Fields of one record: as Python's csv module reads them."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.read.csv_fields import fields_of, why_bad
from rowmill.rows import CsvLayout

COMMA = CsvLayout(columns=("a",), delimiter=",", quote='"')
RECORDS = st.lists(st.sampled_from(['"', '""', ",", "a", " ", "é", '","']), max_size=30).map(
    "".join
)


@settings(max_examples=300)
@given(RECORDS.filter(bool))
def test_fields_are_those_of_the_csv_module(record: str) -> None:
    expected = next(csv.reader(io.StringIO(record, newline="")))

    assert fields_of(record.encode(), COMMA) == [field.encode() for field in expected]


@given(RECORDS)
def test_without_quoting_a_record_is_split(record: str) -> None:
    layout = CsvLayout(columns=("a",), delimiter=",", quote="")

    assert fields_of(record.encode(), layout) == record.encode().split(b",")


def test_line_ends_in_quotes_stay_as_they_are() -> None:
    assert fields_of(b'"a\r\nb",c', COMMA) == [b"a\r\nb", b"c"]


def test_a_record_of_many_quotes_takes_no_time() -> None:
    assert fields_of(b'"' + b'""a' * 300_000 + b'",b', COMMA) == [b'"a' * 300_000, b"b"]


@pytest.mark.parametrize(
    ("record", "num_fields", "is_open", "words"),
    [
        (b"a", 1, False, "1 field, expected 2"),
        (b"a,b,c", 3, False, "3 fields, expected 2"),
        (b"a,\xe9", 2, False, "not valid UTF-8: byte 0xE9 at position 3"),
        (b"aaa,b\0", 2, False, "a raw NUL byte at position 6"),
        (b"a\0,\0b\0", 2, False, "UTF-16"),
        (b'a,"b', 2, True, "never closed"),
        (b"a,b", 2, False, ""),
    ],
)
def test_reasons_name_what_is_wrong(
    record: bytes, num_fields: int, is_open: bool, words: str
) -> None:
    reason = why_bad(record, num_fields, 2, is_open=is_open)

    assert words in reason
    assert bool(words) == bool(reason)
