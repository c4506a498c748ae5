"""Tables of a shard of CSV: which records are rows, which values they have, in which ranges."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowmill.errors import StorageError
from rowmill.read import csv as module
from rowmill.read import csv_batch, csv_cut
from rowmill.read.csv import RecordCutter, tables
from rowmill.read.csv_cut import record_ends
from rowmill.read.csv_sort import Sorting
from rowmill.rows import CsvLayout, Shard

COMMA = CsvLayout(columns=("a", "b"), delimiter=",", quote='"')
BOM = "\ufeff"

SIGNS = ['"', '""', ",", "\n", "\r", "\r\n", "a", " ", "é", BOM, '","']
FIELDS = st.one_of(
    st.sampled_from(["", '""', "a", "é\t", f"{BOM}a", '"a\r\nb"', '"\n"""', '5"', '"a"b"']),
    st.lists(st.sampled_from(SIGNS), max_size=4).map("".join),
)
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", ""])
# Mostly records of one width, so that most of a text is plain.
LINES = st.builds(
    lambda fields, end: ",".join(fields) + end,
    st.lists(FIELDS, min_size=1, max_size=3),
    LINE_ENDS,
)
TEXTS = st.lists(LINES, max_size=12).map("".join)
BYTES = st.lists(
    st.one_of(
        st.sampled_from([sign.encode() for sign in SIGNS]),
        st.sampled_from(
            [b"\0", b"\xff", b"\xe9", b"\xed\xa0\x80", b"a,b\n", b'"a","b"\n', b"a\n"]
        ),
        st.binary(max_size=3),
    ),
    max_size=40,
).map(b"".join)
LAYOUTS = st.builds(
    CsvLayout,
    columns=st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]),
    delimiter=st.sampled_from([",", "\t"]),
    quote=st.sampled_from(['"', '"', ""]),
)
SIZES = st.sampled_from([1, 2, 3, 5, 8, 64, 1000])


class Read(NamedTuple):
    """A record as it was read."""

    ordinal: int
    values: tuple[str | None, ...]
    is_bad: bool


def shard_of(path: Path, layout: CsvLayout, *, num_records: int | None = None) -> Shard:
    text = path.read_bytes()
    num = len(record_ends(text, layout)) if num_records is None else num_records
    return Shard(
        index=0,
        path=str(path),
        name=path.name,
        start=0,
        stop=len(text),
        first_line=1,
        num_lines=num,
        format="csv",
        csv=layout,
    )


def read(
    shard: Shard,
    first: int = 0,
    stop: int | None = None,
    *,
    wants: Callable[[str], bool] | None = None,
    max_record_bytes: int = 1 << 20,
) -> list[Read]:
    found = []
    for table in tables(
        shard, first=first, stop=stop, wants=wants, max_record_bytes=max_record_bytes
    ):
        table.batch.validate(full=True)
        columns = [column.to_pylist() for column in table.batch.columns]
        values = list(zip(*columns, strict=True)) if columns else [()] * table.batch.num_rows
        assert len(values) == len(table.ordinals) <= module.TABLE_ROWS
        assert all(0 <= at < len(values) and why for at, why in table.bad.items())
        found += [
            Read(ordinal, row, at in table.bad)
            for at, (ordinal, row) in enumerate(
                zip(table.ordinals.tolist(), values, strict=True)
            )
        ]
    return found


def read_text(
    text: bytes, layout: CsvLayout, sizes: tuple[int, int, int], *, limit: int = 1 << 20
) -> list[Read]:
    """The text read with small blocks, windows and tables."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(module, "BLOCK_BYTES", sizes[0])
        patch.setattr(csv_cut, "WINDOW_BYTES", sizes[1])
        patch.setattr(module, "TABLE_ROWS", sizes[2])
        patch.setattr(csv_batch, "PART_ROWS", sizes[2])
        path = Path(folder) / "in.csv"
        path.write_bytes(text)
        return read(shard_of(path, layout), max_record_bytes=limit)


def by_csv_module(text: str, layout: CsvLayout) -> list[list[str]]:
    lines = io.StringIO(text, newline="")
    if not layout.quote:
        return list(csv.reader(lines, delimiter=layout.delimiter, quoting=csv.QUOTE_NONE))
    return list(csv.reader(lines, delimiter=layout.delimiter, quotechar=layout.quote))


def expected(text: str, layout: CsvLayout) -> list[Read]:
    """What Python's csv module reads, by the rules of rows and bad records."""
    records = by_csv_module(text, layout)
    # Where a quote is open, more text makes no more records.
    is_open = bool(records) and len(by_csv_module(f"{text}\na", layout)) == len(records)
    width = len(layout.columns)
    return [
        Read(
            ordinal,
            (*fields[:width], *[None] * (width - len(fields))),
            len(fields) != width
            or (is_open and ordinal == len(records) - 1)
            or "\0" in "".join(fields),
        )
        for ordinal, fields in enumerate(records)
        if fields
    ]


def check_like_csv_module(text: str, layout: CsvLayout, sizes: tuple[int, int, int]) -> None:
    text = text.replace(",", layout.delimiter)

    assert read_text(text.encode(), layout, sizes) == expected(text, layout)


def check_any_bytes(text: bytes, layout: CsvLayout, sizes: tuple[int, int, int]) -> None:
    ends = record_ends(text, layout).tolist()
    blank = {
        at
        for at, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
        if not text[begin:end].strip(b"\r\n")
    }
    found = read_text(text, layout, sizes)

    assert [row.ordinal for row in found] == [at for at in range(len(ends)) if at not in blank]
    for row in found:
        record = text[ends[row.ordinal - 1] if row.ordinal else 0 : ends[row.ordinal]]
        is_text = _is_text(record)
        assert row.is_bad or (is_text and None not in row.values)
    again = read_text(text, layout, (1 << 20, 1 << 20, 10_000))
    assert found == again


def _is_text(record: bytes) -> bool:
    try:
        return "\0" not in record.decode()
    except UnicodeDecodeError:
        return False


@given(TEXTS, LAYOUTS, st.tuples(SIZES, SIZES, SIZES))
def test_records_are_those_of_the_csv_module(
    text: str, layout: CsvLayout, sizes: tuple[int, int, int]
) -> None:
    check_like_csv_module(text, layout, sizes)


@pytest.mark.slow
@settings(max_examples=2000)
@given(TEXTS, LAYOUTS, st.tuples(SIZES, SIZES, SIZES))
def test_records_are_those_of_the_csv_module_in_many_texts(
    text: str, layout: CsvLayout, sizes: tuple[int, int, int]
) -> None:
    check_like_csv_module(text, layout, sizes)


@given(BYTES, LAYOUTS, st.tuples(SIZES, SIZES, SIZES))
def test_of_any_bytes_each_record_is_a_row_or_bad(
    text: bytes, layout: CsvLayout, sizes: tuple[int, int, int]
) -> None:
    check_any_bytes(text, layout, sizes)


@pytest.mark.slow
@settings(max_examples=2000)
@given(st.one_of(BYTES, st.binary(max_size=200)), LAYOUTS, st.tuples(SIZES, SIZES, SIZES))
def test_of_many_bytes_each_record_is_a_row_or_bad(
    text: bytes, layout: CsvLayout, sizes: tuple[int, int, int]
) -> None:
    check_any_bytes(text, layout, sizes)


@given(TEXTS, st.integers(-1, 14), st.integers(0, 14), SIZES)
def test_a_range_is_that_part_of_all_records(
    text: str, first: int, stop: int, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(module, "BLOCK_BYTES", size)
        path = Path(folder) / "in.csv"
        path.write_bytes(text.encode())
        shard = shard_of(path, COMMA)
        part, whole = read(shard, first, stop), read(shard)

    assert part == [row for row in whole if first <= row.ordinal < stop]


@given(BYTES, st.integers(1, 10), SIZES)
def test_shards_cut_at_record_ends_hold_the_same_records(
    text: bytes, every: int, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(module, "BLOCK_BYTES", size)
        path = Path(folder) / "in.csv"
        path.write_bytes(text)
        cutter = RecordCutter(COMMA)
        told = [cutter.feed(text[at : at + every]) for at in range(0, len(text), every)]
        cuts = [(0, 0), *told, cutter.finish()]
        found = []
        for (start, before), (stop, upto) in pairwise(cuts):
            shard = Shard(
                index=0,
                path=str(path),
                name="in.csv",
                start=start,
                stop=stop,
                first_line=before + 1,
                num_lines=upto - before,
                format="csv",
                csv=COMMA,
            )
            found += [row._replace(ordinal=before + row.ordinal) for row in read(shard)]
        whole = read(shard_of(path, COMMA))

    assert found == whole


@given(BYTES, st.sets(st.sampled_from("ab")))
def test_unwanted_columns_change_no_row(text: bytes, wanted: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in.csv"
        path.write_bytes(text)
        shard = shard_of(path, COMMA)
        some, whole = read(shard, wants=wanted.__contains__), read(shard)

    kept = [at for at, name in enumerate("ab") if name in wanted]
    assert some == [row._replace(values=tuple(row.values[at] for at in kept)) for row in whole]


@pytest.mark.parametrize("block", [1 << 20, 1 << 16, (1 << 20) + 1, 3000, 1 << 22])
@pytest.mark.parametrize("shift", range(-3, 3))
def test_a_line_end_in_quotes_is_whole_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, shift: int
) -> None:
    """pyarrow 26 alone loses the `\\n` of a `\\r\\n` in quotes that lies across two of its blocks."""
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    border = 1 << 20
    head = b'x,"' + b"y" * 1000 + b'"\r\n'
    fill = b"z" * ((border + shift - 5 - len(head)) % 1005)
    times = (border + shift - 5 - len(head) - len(fill)) // len(head)
    text = head * times + head[:3] + fill
    text = text.ljust(border + shift - 1, b"w") + b'\r\n"\r\n' + head * 3
    (tmp_path / "in.csv").write_bytes(text)
    assert text[border + shift - 1 : border + shift + 1] == b"\r\n"

    found = read(shard_of(tmp_path / "in.csv", COMMA))

    wanted = [tuple(fields) for fields in by_csv_module(text.decode(), COMMA)]
    assert [row.values for row in found] == wanted


def test_values_are_the_text_of_fields(tmp_path: Path) -> None:
    text = 'NULL,\n"", 1 \n007,1e5\n"a""b","c\r\nd"\ntrue,NaN\n'
    (tmp_path / "in.csv").write_text(text, "utf-8", newline="")

    assert [row.values for row in read(shard_of(tmp_path / "in.csv", COMMA))] == [
        ("NULL", ""),
        ("", " 1 "),
        ("007", "1e5"),
        ('a"b', "c\r\nd"),
        ("true", "NaN"),
    ]


def test_every_column_is_a_string(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"1,2\n\n3\n\xff,4\n")

    schemas = [table.batch.schema for table in tables(shard_of(tmp_path / "in.csv", COMMA))]
    assert schemas == [pa.schema([("a", pa.string()), ("b", pa.string())])]


def test_blank_records_count_but_are_no_rows(tmp_path: Path) -> None:
    one = CsvLayout(columns=("a",), delimiter=",", quote='"')
    (tmp_path / "in.csv").write_bytes(b'\na\n\r\n""\n \n\n')

    assert read(shard_of(tmp_path / "in.csv", one)) == [
        Read(1, ("a",), False),
        Read(3, ("",), False),
        Read(4, (" ",), False),
    ]


def test_bad_records_have_a_reason_and_the_fields_that_are_there(tmp_path: Path) -> None:
    text = b'1,2\n1\n1,2,3\n\xe9,2\n1,\0\n5" tall,2\n"1,2\n'
    (tmp_path / "in.csv").write_bytes(text)

    shard = shard_of(tmp_path / "in.csv", COMMA)
    reasons = {
        int(table.ordinals[at]): reason.split(";")[0]
        for table in tables(shard)
        for at, reason in table.bad.items()
    }

    assert [row.values for row in read(shard)] == [
        ("1", "2"),
        ("1", None),
        ("1", "2"),
        (None, "2"),
        ("1", "\0"),
        ('5" tall', "2"),
        ("1,2\n", None),
    ]
    assert reasons == {
        1: "1 field, expected 2 as the first record has",
        2: "3 fields, expected 2 as the first record has",
        3: "not valid UTF-8: byte 0xE9 at position 1 of the record",
        4: "a raw NUL byte at position 3 of the record",
        6: "a quote is never closed, all that follows is one field",
    }


@pytest.mark.parametrize("bad", [b"1", b"1,2,3", b"\xe9,2", b"1,\0", b"\0,2", b'"\xff",2'])
def test_a_bad_record_spoils_no_neighbour(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "in.csv").write_bytes(b"1,2\n" + bad + b"\n3,4\n")

    found = read(shard_of(tmp_path / "in.csv", COMMA))

    assert [row.is_bad for row in found] == [False, True, False]
    assert [found[0].values, found[2].values] == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_a_record_too_long_is_bad_and_its_neighbours_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    long = b'"' + b"x\n" * 200 + b'",1\n'
    (tmp_path / "in.csv").write_bytes(b"1,2\n" + long + b"3,4\n5,6\n" + long + long[:-1])

    shard = shard_of(tmp_path / "in.csv", COMMA)
    found = read(shard, max_record_bytes=100)
    reasons = [
        why for table in tables(shard, max_record_bytes=100) for why in table.bad.values()
    ]

    assert [row.values for row in found] == [
        ("1", "2"),
        (None, None),
        ("3", "4"),
        ("5", "6"),
        (None, None),
        (None, None),
    ]
    assert [why.split(",")[0] for why in reasons] == ["a record of 405 bytes"] * 2 + [
        "a record of 404 bytes"
    ]


@given(TEXTS, st.tuples(SIZES, SIZES, SIZES), st.integers(1, 12))
def test_how_long_a_record_is_does_not_depend_on_blocks(
    text: str, sizes: tuple[int, int, int], limit: int
) -> None:
    encoded = text.encode()
    plain = read_text(encoded, COMMA, (1 << 20, 1 << 20, 10_000), limit=limit)

    assert read_text(encoded, COMMA, sizes, limit=limit) == plain


def test_plain_text_is_not_taken_apart_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    inner = Sorting.fields

    def counted(self: Sorting, at: int) -> list[bytes]:
        taken.append(at)
        return inner(self, at)

    monkeypatch.setattr(Sorting, "fields", counted)
    text = b'1,"a\nb"\n\n' * 5000 + b"2\n" + b'"3",5"\n' * 5000
    (tmp_path / "in.csv").write_bytes(text)

    assert len(read(shard_of(tmp_path / "in.csv", COMMA))) == 10_001
    assert taken == [10_000]


@pytest.mark.parametrize("num_records", [1, 3])
def test_a_file_with_other_records_than_were_counted_is_an_error(
    tmp_path: Path, num_records: int
) -> None:
    (tmp_path / "in.csv").write_bytes(b"1,2\n3,4\n")
    shard = shard_of(tmp_path / "in.csv", COMMA, num_records=num_records)

    with pytest.raises(StorageError, match="changed"):
        read(shard)
