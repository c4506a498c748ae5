"""Files of text in one pass: whatever they are packed in, the rows are those of the plain text."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadSource, StorageError
from rowmill.read import line_of, read_spans
from rowmill.read import spool as spool_module
from rowmill.read.jsonl import read_lines
from rowmill.read.listing import Found, looked_at
from rowmill.read.scan import Place, Scanned, scan_text
from rowmill.read.text import blocks
from rowmill.read.unpack import container_of
from rowmill.read.zstd import ZstdCompressor
from rowmill.rows import CsvLayout, Row, Shard

BOM = b"\xef\xbb\xbf"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda text: ZstdCompressor().compress(text, ZstdCompressor.FLUSH_FRAME),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
lines = st.lists(st.sampled_from([b"", b" ", b"{}", b'{"a": "xyz"}\r', b"\xff"]), max_size=30)
texts = st.builds(
    lambda bom, parts, end: bom + b"\n".join(parts) + end,
    st.sampled_from([b"", BOM]),
    lines,
    st.sampled_from([b"", b"\n"]),
)


def found(path: Path, format: str = "jsonl") -> Found:
    state = path.stat()
    container = container_of(path.read_bytes()[:512])
    return Found(
        str(path),
        path.name,
        state.st_size,
        state.st_mtime_ns,
        container,
        format,  # type: ignore[arg-type]
    )


def scanned(
    folder: Path, content: bytes, *, shard_bytes: int = 1 << 20, format: str = "jsonl"
) -> Scanned:
    path = folder / "in.x"
    path.write_bytes(content)
    place = Place(number=7, first_shard=3, spool=folder / "spool")
    return scan_text(found(path, format), shard_bytes=shard_bytes, place=place)


def rows_of(shards: list[Shard]) -> list[tuple[int, bytes | None]]:
    return [
        (shard.first_line + (row.key & 0xFFFF), row.line if isinstance(row, Row) else None)
        for shard in shards
        for chunk in read_lines(shard)
        for row in chunk
    ]


def split(text: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    yield from (text[a:b] for a, b in itertools.pairwise(places))


@given(
    st.sampled_from(sorted(PACK)),
    texts,
    st.lists(st.integers(0, 200), max_size=3),
    st.integers(1, 60),
)
def test_packed_text_gives_the_rows_of_plain_text(
    container: str, text: bytes, cuts: list[int], shard_bytes: int
) -> None:
    packed = b"".join(map(PACK[container], split(text, cuts))) or PACK[container](b"")
    with tempfile.TemporaryDirectory() as folder:
        file, shards, _ = scanned(Path(folder), packed, shard_bytes=shard_bytes)
        plain = scanned(Path(folder), text, shard_bytes=shard_bytes)
        assert rows_of(shards) == rows_of(plain.shards)
        assert b"".join(map(b"".join, map(blocks, shards))) == text.removeprefix(BOM)
        for shard, like in zip(shards, plain.shards, strict=True):
            spans = [span for chunk in read_spans(shard) for span in chunk]
            assert [line_of(shard, at) for at, _ in spans] == [body for _, body in spans]
            assert (shard.index, shard.num_lines) == (like.index, like.num_lines)
            assert (shard.name, Path(shard.path).name) == ("in.x", "00007.zst")
    assert file.digest == xxhash.xxh3_128_hexdigest(packed)
    assert (file.container, file.spool, file.num_lines) == (
        container,
        "00007.zst",
        plain.file.num_lines,
    )
    assert (plain.file.container, plain.file.spool) == ("", "")


@given(st.sampled_from(sorted(PACK)), texts, st.data())
def test_packed_text_that_is_cut_leaves_an_error_and_no_spool(
    container: str, text: bytes, data: st.DataObject
) -> None:
    packed = PACK[container](text)
    packed = packed[: data.draw(st.integers(min(10, len(packed) - 1), len(packed) - 1))]
    with tempfile.TemporaryDirectory() as folder:
        with pytest.raises(BadSource, match=r"in\.x`: the compressed data ends early"):
            scanned(Path(folder), packed, shard_bytes=10)
        assert not list(Path(folder, "spool").glob("*"))


def test_an_array_is_spooled_as_lines(tmp_path: Path) -> None:
    elements = [{"a": number} for number in range(100)]
    for content in (json.dumps(elements, indent=2), json.dumps(elements)):
        file, shards, _ = scanned(
            tmp_path, BOM + content.encode(), format="json", shard_bytes=200
        )
        bodies = [json.loads(body or b"") for _, body in rows_of(shards)]

        assert bodies == elements
        assert [line for line, _ in rows_of(shards)] == list(range(1, 101))
        assert len(shards) > 3
        assert file.num_lines == 100


def test_an_array_within_gzip_is_both(tmp_path: Path) -> None:
    _, shards, _ = scanned(tmp_path, gzip.compress(b'[{"a":\n1}, {"a": 2}]'), format="json")

    assert [json.loads(body or b"") for _, body in rows_of(shards)] == [{"a": 1}, {"a": 2}]


def test_json_lines_named_json_are_read_in_place(tmp_path: Path) -> None:
    file, *_ = scanned(tmp_path, b'{"a": 1}\n{"a": 2}\n', format="json")

    assert (file.spool, file.num_lines) == ("", 2)


@pytest.mark.parametrize(
    ("inner", "told"),
    [
        ("{}".encode("utf-16"), "it is UTF-16 text; write it as UTF-8"),
        (b"a.jsonl".ljust(257, b"\0") + b"ustar\x0000" + bytes(300), "it holds a tar archive"),
        (b"PAR1", "it is Parquet, which is read from a file of its own"),
        (gzip.compress(b"{}", mtime=0), "it is packed a second time; unpack it once"),
    ],
)
def test_what_is_within_is_told_by_what_it_is(tmp_path: Path, inner: bytes, told: str) -> None:
    with pytest.raises(BadSource) as caught:
        scanned(tmp_path, gzip.compress(inner))

    assert f"in.x`: unpacked (gzip), {told}" in str(caught.value)


def test_without_a_folder_packed_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"{}"))

    with pytest.raises(BadSource, match="is compressed with gzip, and there is no folder"):
        scan_text(found(tmp_path / "a"), shard_bytes=100)


def test_an_exception_at_any_write_leaves_no_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"".join(b'{"a": %d}\n' % number for number in range(500))
    wanted = scanned(tmp_path, gzip.compress(text), shard_bytes=500).shards
    spool = tmp_path / "spool/00007.zst"
    whole = spool.read_bytes()
    spool.unlink()
    put = spool_module.Spool._put
    left = 0

    def failing(self: spool_module.Spool, packed: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        put(self, packed)

    monkeypatch.setattr(spool_module.Spool, "_put", failing)
    num_writes, told, left_behind = 0, set(), list[Path]()
    while True:
        left = num_writes
        try:
            again = scanned(tmp_path, gzip.compress(text), shard_bytes=500).shards
        except StorageError as error:
            told.add(str(error).split("`: ")[1])
            left_behind += (tmp_path / "spool").iterdir()
            num_writes += 1
        else:
            break

    assert num_writes > 10
    assert left_behind == []
    assert [sentence.split(";")[0] for sentence in told] == [
        "cannot be written (No space left on device)"
    ]
    assert (again, spool.read_bytes()) == (wanted, whole)


@pytest.mark.parametrize(
    ("head", "first_line"),
    [
        (b"a,b\n", 2),
        (b'"a\nx\ny",b\n', 2),
        (b'"a\r\nx",b\r\n', 2),
        (b"a,b\r", 2),
        (b"\n\na,b\n", 4),
        (b"\r\ra,b\r", 4),
        (b'\r\n"a\nx",b\r\n', 3),
    ],
)
def test_lines_of_csv_are_counted_as_records_from_the_header_on(
    tmp_path: Path, head: bytes, first_line: int
) -> None:
    (tmp_path / "a.csv").write_bytes(head + b"1,2\n3,4\n")
    file, shards, _ = scan_text(looked_at(found(tmp_path / "a.csv")), shard_bytes=1 << 20)

    assert [(shard.first_line, shard.num_lines) for shard in shards] == [(first_line, 2)]
    assert file.num_lines == 2


def test_records_of_csv_are_cut_whole_and_the_header_stands_before_them(tmp_path: Path) -> None:
    text = BOM + b'a,b\n1,"x\ny"\n\n2,"dddddddddddd\n\n"\n3,e'
    for content in (text, gzip.compress(text)):
        (tmp_path / "a.csv").write_bytes(content)
        file, shards, _ = scan_text(
            looked_at(found(tmp_path / "a.csv")),
            shard_bytes=4,
            place=Place(spool=tmp_path / "spool"),
        )

        assert b"".join(b"".join(blocks(shard)) for shard in shards) == text[len(BOM) + 4 :]
        assert all(b"".join(blocks(shard)).count(b'"') % 2 == 0 for shard in shards)
        assert len(shards) > 2
        assert {(shard.format, shard.csv) for shard in shards} == {
            ("csv", CsvLayout(("a", "b"), ",", '"'))
        }
        assert (shards[0].first_line, file.num_lines) == (2, 4)
        rows = [
            json.loads(line)
            for shard in shards
            for part in read_spans(shard)
            for _, line in part
        ]
        assert rows == [
            {"a": "1", "b": "x\ny"},
            {"a": "2", "b": "dddddddddddd\n\n"},
            {"a": "3", "b": "e"},
        ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_spooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    content = pack(BOM + b'[{"a": 1},\n{"a": 2}]')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    place = Place(spool=tmp_path)
    file, shards, _ = scan_text(
        Found("-", "stdin", 0, 0, "", "json"), shard_bytes=100, place=place
    )

    assert [json.loads(body or b"") for _, body in rows_of(shards)] == [{"a": 1}, {"a": 2}]
    assert (file.path, file.size, file.digest) == (
        "-",
        len(content),
        xxhash.xxh3_128_hexdigest(content),
    )


def test_a_file_that_grows_while_it_is_read_leaves_no_spool(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(b"{}\n"))
    before = found(path)
    path.write_bytes(gzip.compress(b"{}\n") * 2)

    with pytest.raises(BadSource, match="changed while it was read"):
        scan_text(before, shard_bytes=9, place=Place(spool=tmp_path / "spool"))
    assert list((tmp_path / "spool").iterdir()) == []


MEASURE = """
import re, sys
from pathlib import Path
from rowmill.read import open_source
from rowmill.read.jsonl import read_lines
folder = Path(sys.argv[1])
source = open_source([str(folder / "in.jsonl")], spool=folder / "spool")
rows = sum(len(chunk) for shard in source.shards for chunk in read_lines(shard))
# ru_maxrss would begin with the pages of whoever started us.
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(rows, source.num_lines, int(peak) // 1024)
"""


@pytest.mark.slow
def test_a_large_packed_file_is_unpacked_and_read_in_little_memory(
    tmp_path: Path, python: str
) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshr", k=draw.randint(2, 9))) for _ in range(5_000)]
    lines = [
        json.dumps({"id": number, "prompt": " ".join(draw.choices(words, k=150))}) + "\n"
        for number in range(4_000)
    ]
    packed = gzip.compress("".join(lines).encode(), 1)
    try:
        with (tmp_path / "in.jsonl").open("wb") as file:
            for _ in range(100):
                file.write(packed)
        told = subprocess.check_output([python, "-c", MEASURE, str(tmp_path)], text=True)
    finally:
        shutil.rmtree(tmp_path)
    num_rows, num_lines, peak_mib = map(int, told.split())

    assert num_rows == num_lines == 400_000
    assert peak_mib < 300
