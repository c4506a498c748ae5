"""Layout of a CSV file: what its first record says, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rowmill.errors import BadSource
from rowmill.read.csv_layout import HEADER_BYTES, read_layout
from rowmill.read_config import ReadConfig
from rowmill.rows import CsvLayout


def layout_of(
    text: bytes, *, name: str = "in.csv", is_all: bool = True, **read: Any
) -> tuple[CsvLayout, int]:
    return read_layout(text, is_all=is_all, read=ReadConfig.model_validate(read), name=name)


def test_the_first_record_names_the_columns() -> None:
    layout, offset = layout_of(b'id,"a ""b""\nc", d \r\n1,2,3\r\n')

    assert layout == CsvLayout(columns=("id", 'a "b"\nc', " d "), delimiter=",", quote='"')
    assert offset == len(b'id,"a ""b""\nc", d \r\n')


def test_blank_lines_before_the_header_are_passed_over() -> None:
    layout, offset = layout_of(b"\n\r\na,b\n1,2\n")

    assert (layout.columns, offset) == (("a", "b"), 7)


def test_a_header_needs_no_line_end_and_no_rows() -> None:
    layout, offset = layout_of(b"a,b")

    assert (layout.columns, offset) == (("a", "b"), 3)


def test_empty_names_are_called_by_their_place() -> None:
    assert layout_of(b',b,""\n')[0].columns == ("column1", "b", "column3")


def test_without_a_header_columns_are_counted() -> None:
    layout, offset = layout_of(b"\nx,y,z\n", header=False)

    assert (layout.columns, offset) == (("column1", "column2", "column3"), 0)


@pytest.mark.parametrize(
    ("name", "read", "delimiter"),
    [
        ("in.csv", {}, ","),
        ("IN.TSV", {}, "\t"),
        ("in.tab", {}, "\t"),
        ("in.tsv.gz", {}, "\t"),
        ("in.csv.gz", {}, ","),
        ("-", {}, ","),
        ("-", {"format": "tsv"}, "\t"),
        ("in.tsv", {"delimiter": ";"}, ";"),
    ],
)
def test_a_delimiter_that_is_not_set_comes_from_the_name(
    name: str, read: dict[str, Any], delimiter: str
) -> None:
    assert layout_of(b"a\n", name=name, **read)[0].delimiter == delimiter


def test_an_empty_quote_means_nothing() -> None:
    assert layout_of(b'"a,b"\n', quote="")[0].columns == ('"a', 'b"')


@pytest.mark.parametrize(
    ("text", "read", "words"),
    [
        (b"", {}, "header is missing"),
        (b"\n\r\n", {}, "header is missing"),
        (b"", {"header": False}, "no record at all"),
        (b"a,b,a,c,b\n", {}, "`a`, `b`"),
        (b"column2,\n", {}, "`column2`"),
        (b"a,\xff\n", {}, "not valid UTF-8: byte 0xFF at position 3 of"),
        (b"a\0b\n", {}, "NUL"),
        (b'a,"b\n1,2\n', {}, "never closed"),
        (b"a\n", {"delimiter": "\n"}, "`read.delimiter`"),
        (b"a\n", {"delimiter": "é"}, "`read.delimiter`"),
        (b"a\n", {"quote": "\0"}, "`read.quote`"),
        (b"a\n", {"delimiter": '"'}, "both"),
    ],
)
def test_what_names_no_columns_is_refused(
    text: bytes, read: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadSource) as refused:
        layout_of(text, **read)

    assert words in str(refused.value)


def test_a_first_record_without_an_end_is_refused() -> None:
    with pytest.raises(BadSource, match="does not end within 3 bytes"):
        layout_of(b"a,b", is_all=False)
    with pytest.raises(BadSource, match="does not end within 1,048,576 bytes"):
        layout_of(b"a" * HEADER_BYTES + b"\n1\n")


def test_many_duplicates_are_counted() -> None:
    names = ",".join(f"c{at % 9}" for at in range(18))
    with pytest.raises(BadSource, match="`c4` and 4 more"):
        layout_of(names.encode())
