"""Ends of records: the same as Python's csv module finds, however the text comes in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.read import csv_cut as module
from rowmill.read.csv_cut import RecordCutter, record_ends
from rowmill.rows import CsvLayout

COMMA = CsvLayout(columns=("a",), delimiter=",", quote='"')
LAYOUTS = st.sampled_from(
    [
        COMMA,
        CsvLayout(columns=("a",), delimiter="\t", quote='"'),
        CsvLayout(columns=("a",), delimiter=";", quote="'"),
        CsvLayout(columns=("a",), delimiter=",", quote=""),
    ]
)
# What decides is frequent, in pairs as well.
TEXTS = st.lists(
    st.sampled_from(['"', '""', "'", ",", "\t", ";", "\n", "\r", "\r\n", "a", " ", "é", '","']),
    max_size=200,
).map("".join)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def in_blocks(text: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """The text in blocks of these sizes, over and over."""
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        yield text[at : at + size]
        at, turn = at + size, turn + 1


def records_of(text: str, layout: CsvLayout) -> list[list[str]]:
    """What Python's csv module reads."""
    lines = io.StringIO(text, newline="")
    if not layout.quote:
        return list(csv.reader(lines, delimiter=layout.delimiter, quoting=csv.QUOTE_NONE))
    return list(csv.reader(lines, delimiter=layout.delimiter, quotechar=layout.quote))


def cut(text: bytes, layout: CsvLayout, sizes: Sequence[int]) -> list[bytes]:
    """The records, each with its line end."""
    cutter = RecordCutter(layout)
    ends = [end for block in in_blocks(text, sizes) for end in cutter.ends(block).tolist()]
    ends += cutter.last_ends().tolist()
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def check(text: str, layout: CsvLayout, sizes: Sequence[int], window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW_BYTES", window)
        pieces = cut(text.encode(), layout, sizes)

    # Each piece alone is one record, and together they are the records of the text.
    assert b"".join(pieces) == text.encode()
    alone = [records_of(piece.decode(), layout) for piece in pieces]
    assert [len(records) for records in alone] == [1] * len(pieces)
    assert [records[0] for records in alone] == records_of(text, layout)


@given(TEXTS, LAYOUTS, SIZES, st.sampled_from([1, 3, 64, 65, 1000]))
def test_records_end_where_the_csv_module_says(
    text: str, layout: CsvLayout, sizes: list[int], window: int
) -> None:
    check(text, layout, sizes, window)


@pytest.mark.slow
@settings(max_examples=3000)
@given(TEXTS, LAYOUTS, SIZES, st.sampled_from([1, 3, 64, 65, 1000]))
def test_records_end_where_the_csv_module_says_in_many_texts(
    text: str, layout: CsvLayout, sizes: list[int], window: int
) -> None:
    check(text, layout, sizes, window)


@given(st.binary(max_size=300), SIZES, LAYOUTS)
def test_any_bytes_are_cut_the_same_in_any_blocks(
    text: bytes, sizes: list[int], layout: CsvLayout
) -> None:
    cutter = RecordCutter(layout)
    told = [cutter.feed(block) for block in in_blocks(text, sizes)]
    ends = record_ends(text, layout).tolist()

    assert told == sorted(told)
    assert {(end, count) for end, count in told if count} <= set(
        zip(ends, range(1, 400), strict=False)
    )
    assert cutter.finish() == (len(text), len(ends))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("a", 1),
        ("a\n", 1),
        ("\n\n", 2),
        ("a\r\nb\r\n", 2),
        ("a\rb\r", 2),
        ('"a\nb"\n', 1),
        ('"a\r\nb"\r\n', 1),
        ('"a""\n"\n', 1),
        ('5" tall\n6" tall\n', 2),
        ('"a"b"\n"\n', 2),
        ('"never\nclosed\n', 1),
    ],
)
def test_records_are_counted(text: str, count: int) -> None:
    assert len(record_ends(text.encode(), COMMA)) == count


def test_a_carriage_return_at_the_end_of_a_block_waits_for_what_follows() -> None:
    cutter = RecordCutter(COMMA)

    assert cutter.feed(b"a\r") == (0, 0)
    assert cutter.feed(b"\nb\r") == (3, 1)
    assert cutter.feed(b"c") == (5, 2)
    assert cutter.finish() == (6, 3)


def test_an_unclosed_quote_is_told_at_the_end() -> None:
    cutter = RecordCutter(COMMA)
    cutter.feed(b'a\n"b\nc\n')

    assert cutter.finish() == (7, 2)
    assert cutter.is_inside


def test_one_odd_quote_spoils_no_other_block() -> None:
    quoted = b'"a\n""b"\n' * 50_000
    text = quoted + b'5" tall\n' + quoted

    assert len(record_ends(text, COMMA)) == 100_001


@given(TEXTS, LAYOUTS, st.sampled_from([1, 3, 64, 1000]))
def test_delimiters_outside_quotes_part_fields(
    text: str, layout: CsvLayout, window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW_BYTES", window)
        num_delimiters = len(module.delimiters(text.encode(), layout))

    records = records_of(text, layout)
    assert num_delimiters == sum(len(fields) - 1 for fields in records if fields)
