"""Input in a bucket of a real S3 server is read as the same files on a disk are; what changes there is seen."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from rowmill.errors import BadSource, StorageError
from rowmill.read import Source, changed, open_recorded, open_source, read_spans
from rowmill.storage import remote
from rowmill.storage.remote import RemoteFile, RemoteStream
from tests.cases.on_s3 import Prefix, new_prefix
from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.slow
LINES = [
    json.dumps({"id": i, "prompt": f"say {i} \u00e9"}).encode() + b"\n" for i in range(3000)
]
TABLE = pa.table({"id": range(3000), "prompt": [f"say {i}" for i in range(3000)]})


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Prefix:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return new_prefix(s3_server)


def written(write: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    write(TABLE, file, **options)
    return file.getvalue()


FILES = {
    "a.jsonl": b"".join(LINES),
    "b c [1]+%20.jsonl.gz": gzip.compress(b"".join(LINES[:9])) + gzip.compress(LINES[9]),
    "region=007/c.csv": b"id,prompt\n"
    + b"".join(b'%d,"say\n%d"\n' % (i, i) for i in range(50)),
    "deep/er/d.json": json.dumps([{"prompt": "x"}, {"prompt": "y"}], indent=1).encode(),
    "p.parquet": written(pq.write_table, row_group_size=700),
    "p.arrow": written(feather.write_feather, compression="uncompressed"),
    "packed.feather": written(feather.write_feather, compression="zstd"),
}
PASSED_OVER = {".hidden.jsonl": b"x", "_x/y.jsonl": b"x", "empty.jsonl": b"", "notes.txt": b"x"}


def spans_of(source: Source) -> list[tuple[str, int, bytes]]:
    return [
        (shard.name, shard.first_line + ordinal, line)
        for shard in source.shards
        for spans in read_spans(shard)
        for ordinal, line in spans
    ]


@pytest.fixture
def folder(tmp_path: Path, bucket: Prefix) -> Path:
    """The files on a disk, and the same in the bucket."""
    place = tmp_path / "in"
    for name, content in {**FILES, **PASSED_OVER}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
        bucket.put(f"in/{name}", content)
    return place


def opened(tmp_path: Path, *paths: str, **options: Any) -> Source:
    return open_source(list(paths), spool=tmp_path / "spool", **options)


@pytest.mark.parametrize("shard_bytes", [None, 10_000])
def test_a_prefix_is_read_as_the_folder_is(
    tmp_path: Path, folder: Path, bucket: Prefix, shard_bytes: int | None
) -> None:
    here = opened(tmp_path / "1", str(folder), shard_bytes=shard_bytes)
    there = opened(tmp_path / "2", bucket.below("in").url, shard_bytes=shard_bytes)

    assert [file.name for file in there.files] == [file.name for file in here.files]
    assert spans_of(there) == spans_of(here)
    assert [s.partitions for s in there.shards] == [s.partitions for s in here.shards]
    assert [s.num_lines for s in there.shards] == [s.num_lines for s in here.shards]
    assert len(there.files) == len(FILES)
    assert "hidden" in there.notes[0]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("in/*.jsonl", ["a.jsonl"]),
        ("in/**/*.json", ["deep/er/d.json"]),
        ("in/**", sorted(FILES)),
        ("in/*/*.csv", ["region=007/c.csv"]),
        ("in/[pa].*", ["a.jsonl", "p.arrow", "p.parquet"]),
        ("in/.h*", [".hidden.jsonl"]),
        ("in/a.jsonl", ["a.jsonl"]),
        ("in/b c [1]+%20.jsonl.gz", ["b c [1]+%20.jsonl.gz"]),
        ("in/deep/", ["er/d.json"]),
    ],
)
def test_a_pattern_is_what_it_is_on_a_disk(
    tmp_path: Path, folder: Path, bucket: Prefix, pattern: str, names: list[str]
) -> None:
    if pattern == "in/.h*":
        bucket.put("in/.hidden.jsonl", LINES[0])

    found = [file.name for file in opened(tmp_path, f"{bucket.url}/{pattern}").files]

    assert found == names


def test_a_list_may_name_both_and_nothing_twice(
    tmp_path: Path, folder: Path, bucket: Prefix
) -> None:
    one = f"{bucket.url}/in/a.jsonl"

    source = opened(tmp_path, one, str(folder / "a.jsonl"), f"{bucket.url}/in/*.jsonl", one)

    assert len(source.files) == 2
    assert len({file.name for file in source.files}) == 2
    assert "files named before (2)" in source.notes[0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.jsonl", "no such object or prefix"),
        ("none/*.jsonl", "no such object or prefix"),
        ("in/notes.txt", "`.txt` is none of"),
        ("in/*.txt", "no file of rows there"),
        ("zip.jsonl", "holds a ZIP archive"),
        ("broken.parquet", "cannot be read as Parquet"),
        ("cut.jsonl.gz", "the compressed data ends early"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_address(
    tmp_path: Path, folder: Path, bucket: Prefix, name: str, reason: str
) -> None:
    bucket.put("zip.jsonl", b"PK\x03\x04")
    bucket.put("broken.parquet", b"PAR1" + bytes(100))
    bucket.put("cut.jsonl.gz", gzip.compress(b"".join(LINES))[:-20])

    with pytest.raises(BadSource, match=reason) as told:
        opened(tmp_path, f"{bucket.url}/{name}")

    assert f"`{bucket.url}/{name}`" in str(told.value)


@pytest.mark.parametrize("name", ["a.jsonl", "region=007/c.csv", "p.parquet", "p.arrow"])
def test_another_version_is_never_read_for_the_one_that_was_counted(
    tmp_path: Path, folder: Path, bucket: Prefix, name: str
) -> None:
    """Of equal name and size: its rows would get the answers of others."""
    source = opened(tmp_path, f"{bucket.url}/in/{name}")
    expected = spans_of(source)
    content = FILES[name]
    bucket.put(f"in/{name}", content.replace(b"say", b"SAY"))

    with pytest.raises(
        StorageError, match=r"changed meanwhile; put the old object back"
    ) as told:
        spans_of(source)

    assert name in str(told.value)
    assert changed(source.files) == {source.files[0].name: "changed"}
    bucket.put(f"in/{name}", content)
    assert spans_of(source) == expected
    assert changed(source.files) == {}


def test_a_resume_knows_objects_by_their_versions(
    tmp_path: Path, folder: Path, bucket: Prefix
) -> None:
    url = bucket.below("in").url
    before = opened(tmp_path, url)

    again = open_recorded(before.files, before.shards, paths=[url], spool=tmp_path / "spool")

    assert spans_of(again) == spans_of(before)
    bucket.store.delete("in/p.arrow")
    bucket.put("in/new.jsonl", LINES[0])
    bucket.put("in/a.jsonl", b"".join(LINES[:-1]))
    with pytest.raises(BadSource) as told:
        open_recorded(before.files, before.shards, paths=[url], spool=tmp_path / "spool")
    for sentence in ("`a.jsonl` (changed)", "`new.jsonl` (added)", "`p.arrow` (gone)"):
        assert sentence in str(told.value)


def test_files_that_moved_into_a_bucket_are_another_input(
    tmp_path: Path, folder: Path, bucket: Prefix
) -> None:
    """What a disk holds is known by its digest, what a store holds by its version: no guess is made."""
    before = opened(tmp_path, str(folder / "a.jsonl"))

    there = [f"{bucket.url}/in/a.jsonl"]
    assert changed(before.files, paths=there) == {"a.jsonl": "not named", "in/a.jsonl": "added"}
    (folder / "a.jsonl").unlink()
    assert changed(before.files, paths=there) == {"a.jsonl": "changed"}


@pytest.mark.parametrize("block_bytes", [1, 7, 4 << 20])
def test_a_stream_gives_the_bytes_of_its_range(
    bucket: Prefix, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(remote, "BLOCK_BYTES", block_bytes)
    bucket.put("digits", b"0123456789")
    url = f"{bucket.url}/digits"

    for start, stop in ((0, None), (3, None), (3, 8), (0, 10), (10, None), (12, None), (4, 4)):
        with RemoteStream(url, start=start, stop=stop) as stream:
            assert stream.read() == b"0123456789"[start:stop]


def test_a_file_is_read_here_and_there(bucket: Prefix) -> None:
    bucket.put("digits", b"0123456789")
    file = RemoteFile(f"{bucket.url}/digits")

    assert file.pread(3, 8) == b"89"
    assert file.pread(3, 10) == b""
    assert file.seek(-4, io.SEEK_END) == 6
    assert file.read(2) == b"67"
    assert file.tell() == 8
    assert file.read() == b"89"
    with pytest.raises(FileNotFoundError):
        RemoteFile(f"{bucket.url}/none").size()


def test_an_empty_object_is_an_empty_file(bucket: Prefix) -> None:
    bucket.put("empty", b"")

    assert RemoteStream(f"{bucket.url}/empty").read() == b""
    assert RemoteFile(f"{bucket.url}/empty").pread(5, 0) == b""
