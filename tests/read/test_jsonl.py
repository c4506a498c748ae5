"""Rows of a shard: which lines are rows, under which keys, in which ranges."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import StorageError
from rowmill.read import BadLine, Source, line_of, open_source
from rowmill.read import jsonl as module
from rowmill.read.formats import problem_within
from rowmill.read.jsonl import read_lines, read_spans
from rowmill.rows import Row, Shard, unpack_key

WHITE = b" \t\r\n"

lines = st.one_of(
    st.sampled_from(
        [b"", b" ", b"\r", b"\t \r", b"{}", b" {} \r", b"\xff", b"a\0b", b"\xef\xbb\xbf"]
    ),
    st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")),
)
contents = st.builds(
    lambda parts, end: b"\n".join(parts) + end,
    st.lists(lines, max_size=30),
    st.sampled_from([b"", b"\n"]),
).filter(lambda text: not (problem_within(text)))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 7)
    monkeypatch.setattr(module, "CHUNK_ROWS", 3)


def source_of(folder: Path, *contents: bytes, shard_bytes: int | None = None) -> Source:
    for number, content in enumerate(contents):
        (folder / f"{number:03d}.jsonl").write_bytes(content)
    paths = [str(folder / f"{number:03d}.jsonl") for number in range(len(contents))]
    return open_source(paths, shard_bytes=shard_bytes)


def rows_of(shard: Shard, first: int = 0, stop: int | None = None) -> list[Row | BadLine]:
    return [row for chunk in read_lines(shard, first=first, stop=stop) for row in chunk]


def naive(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(line number, body) of every non-blank line, the plain way."""
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip(WHITE):
            yield number, line.strip(WHITE)


def is_sound(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body


def placed(
    source: Source, rows: Sequence[Row | BadLine]
) -> list[tuple[str, int, bytes | None]]:
    """(file, line number, body) of rows; None stands for a bad line's body."""
    found: list[tuple[str, int, bytes | None]] = []
    for row in rows:
        index, ordinal = unpack_key(row.key)
        shard = source.shards[index]
        body = row.line if isinstance(row, Row) else None
        found.append((shard.name, shard.first_line + ordinal, body))
    return found


@pytest.mark.usefixtures("small_chunks")
@given(st.lists(contents, min_size=1, max_size=3), st.integers(1, 40))
def test_rows_of_all_shards_are_the_lines_of_the_files(
    files: list[bytes], shard_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = source_of(Path(folder), *files, shard_bytes=shard_bytes)
        rows = [row for shard in source.shards for row in rows_of(shard)]
    expected = [
        (f"{at:03d}.jsonl", number, body if is_sound(body) else None)
        for at, content in enumerate(files)
        for number, body in naive(content)
    ]

    assert expected == placed(source, rows)
    assert len({row.key for row in rows}) == len(rows)


@pytest.mark.usefixtures("small_chunks")
@given(contents, st.integers(0, 35), st.integers(0, 35), st.integers(1, 40))
def test_any_range_is_that_slice_of_the_whole(
    content: bytes, first: int, stop: int, shard_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for shard in source_of(Path(folder), content, shard_bytes=shard_bytes).shards:
            whole = rows_of(shard)
            within = [row for row in whole if first <= unpack_key(row.key)[1] < stop]
            spans = [
                span for chunk in read_spans(shard, first=first, stop=stop) for span in chunk
            ]

            assert within == rows_of(shard, first, stop)
            assert [unpack_key(row.key)[1] for row in within] == [
                ordinal for ordinal, _ in spans
            ]


@pytest.mark.usefixtures("small_chunks")
@given(contents, st.integers(1, 40))
def test_a_line_is_found_by_its_ordinal(content: bytes, shard_bytes: int) -> None:
    expected = dict(naive(content))
    with tempfile.TemporaryDirectory() as folder:
        source = source_of(Path(folder), content, shard_bytes=shard_bytes)
        found = {
            shard.first_line + ordinal: body
            for shard in source.shards
            for ordinal in range(-1, shard.num_lines + 1)
            if (body := line_of(shard, ordinal)) is not None
        }

    assert expected == found


@pytest.mark.usefixtures("small_chunks")
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 50))
def test_only_lines_over_the_limit_are_bad(lengths: list[int], limit: int) -> None:
    content = b"\n".join(b"x" * length for length in lengths)
    with tempfile.TemporaryDirectory() as folder:
        shard = source_of(Path(folder), content).shards[0]
        rows = [row for chunk in read_lines(shard, max_line_bytes=limit) for row in chunk]
        spans = [span for chunk in read_spans(shard, max_line_bytes=limit) for span in chunk]

    assert [length <= limit for length in lengths] == [isinstance(row, Row) for row in rows]
    assert list(range(len(lengths))) == [unpack_key(row.key)[1] for row in rows]
    assert [length if length <= limit else 0 for length in lengths] == [
        len(s) for _, s in spans
    ]


def test_a_line_that_is_too_long_tells_its_length_and_the_limit(tmp_path: Path) -> None:
    shard = source_of(tmp_path, b"{}\n" + b"x" * 5_000 + b"\n{}\n").shards[0]
    rows = [row for chunk in read_lines(shard, max_line_bytes=1_000) for row in chunk]

    assert rows[1] == BadLine(
        1, "a line of 5,000 bytes, limit 1,000; shorten it or split the row"
    )
    assert [row.key for row in rows] == [0, 1, 2]


def test_invalid_utf8_is_told_with_its_place(tmp_path: Path) -> None:
    shard = source_of(tmp_path, '{"a": "ä"}\n'.encode() + b'{"a": "b\xe9"}\n').shards[0]
    good, bad = rows_of(shard)

    assert isinstance(good, Row)
    assert isinstance(bad, BadLine)
    assert "not valid UTF-8: byte 0xE9 at position 9 of the line" in bad.reason


def test_raw_nul_and_utf16_without_a_mark_are_told_apart(tmp_path: Path) -> None:
    text = '{"a": 1}'
    content = b'{"a": "b\0c"}\n' + text.encode("utf-16-le") + b"\n"
    nul, utf16 = rows_of(source_of(tmp_path, content).shards[0])

    assert isinstance(nul, BadLine)
    assert "raw NUL byte at position 9" in nul.reason
    assert isinstance(utf16, BadLine)
    assert "UTF-16" in utf16.reason


def test_reasons_hold_nothing_of_the_row(tmp_path: Path) -> None:
    content = b'{"a": "secret \xe9"}\n{"a": "secret \0"}\n' + b"secret" * 40
    shard = source_of(tmp_path, content).shards[0]
    bad = [row for chunk in read_lines(shard, max_line_bytes=100) for row in chunk]

    assert [isinstance(row, BadLine) and "secret" not in row.reason for row in bad] == [
        True
    ] * 3


def test_chunks_are_bounded_in_rows(tmp_path: Path) -> None:
    shard = source_of(tmp_path, b"{}\n" * 5_001).shards[0]
    sizes = [len(chunk) for chunk in read_lines(shard)]

    assert sum(sizes) == 5_001
    assert max(sizes) <= module.CHUNK_ROWS


@pytest.mark.parametrize("damage", [b"{}\n{}\n", b"{}\n{}\n{}\n{}\n", b"[1,2,3,4]\n"])
def test_a_file_that_changed_since_it_was_counted_is_an_error(
    tmp_path: Path, damage: bytes
) -> None:
    shard = source_of(tmp_path, b"{}\n{}\n{}\n\n").shards[0]
    Path(shard.path).write_bytes(damage)

    with pytest.raises(StorageError, match="changed while the run was reading it"):
        rows_of(shard)


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    shard = source_of(tmp_path, b"{}\n" * 5_000).shards[0]
    chunks = read_lines(shard)
    next(chunks)
    os.utime(shard.path, ns=(1, 1))

    with pytest.raises(StorageError, match="changed"):
        list(chunks)


def test_a_file_that_is_gone_is_an_error_with_its_path(tmp_path: Path) -> None:
    shard = source_of(tmp_path, b"{}\n").shards[0]
    Path(shard.path).unlink()

    with pytest.raises(StorageError, match=r"000\.jsonl.*No such file"):
        rows_of(shard)


def test_an_empty_range_opens_nothing(tmp_path: Path) -> None:
    shard = source_of(tmp_path, b"{}\n").shards[0]
    Path(shard.path).unlink()

    assert rows_of(shard, 1, 1) == []
    assert line_of(shard, 1) is None
