"""What a file is, by its first bytes and its name."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest

from rowmill.read.formats import problem_of, problem_within, suffix_of, what_is
from rowmill.read_config import ReadConfig

AUTO = ReadConfig()


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.jsonl", "jsonl"),
        ("a.NDJSON", "jsonl"),
        ("a.json", "json"),
        ("a.csv", "csv"),
        ("a.tsv", "tsv"),
        ("a.parquet", "parquet"),
        ("a.feather", "arrow"),
        ("a", "jsonl"),
        ("a.csv.gz", "csv"),
        ("A.JSON.Zst", "json"),
        ("a.gz", "jsonl"),
    ],
)
def test_the_suffix_names_the_format_where_bytes_do_not(name: str, format: str) -> None:
    assert what_is(f"in.csv/{name}", b"a,b\n", AUTO) == ("", format)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"PAR1\x15", ("", "parquet")),
        (b"ARROW1\0\0", ("", "arrow")),
        (b"\xff\xff\xff\xff\x80\1\0\0\x10", ("", "arrow")),
        (gzip.compress(b"", mtime=0), ("gzip", "csv")),
        (bz2.compress(b""), ("bzip2", "csv")),
        (lzma.compress(b""), ("xz", "csv")),
    ],
)
def test_bytes_come_before_the_suffix(head: bytes, what: tuple[str, str]) -> None:
    assert what_is("a.csv", head, AUTO) == what


def test_a_format_that_is_set_holds_for_every_file() -> None:
    assert what_is("a.parquet", b"PAR1", ReadConfig(format="csv")) == ("", "csv")
    assert what_is("-", b"", ReadConfig(format="csv")) == ("", "csv")


def test_a_suffix_of_packing_is_taken_off_once() -> None:
    assert [suffix_of(name) for name in ("a.csv.gz", "a.gz.gz", "gz", "a.JSONL")] == [
        ".csv",
        ".gz",
        "",
        ".jsonl",
    ]


def test_text_has_no_problem() -> None:
    for head in (b"", b"{}", b"a,b\n", "ä".encode(), b"PK,id\n", b"BZhang"):
        assert problem_of(head) == ""
        assert problem_within(head) == ""


def test_what_is_within_may_be_no_table_and_not_packed_again() -> None:
    assert problem_of(b"PAR1") == ""
    assert problem_within(b"PAR1").startswith("is Parquet, which is read from a file")
    assert problem_within(gzip.compress(b"{}")) == "is packed a second time; unpack it once"
