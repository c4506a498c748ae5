"""The input as files and shards: slices, digests, what a resume may take for unchanged."""

from __future__ import annotations

import gzip
import io
import os
import resource
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadSource
from rowmill.read import Source, SourceFile, changed, open_recorded, open_source
from rowmill.read import source as module
from rowmill.read.jsonl import read_lines
from rowmill.read_config import ReadConfig
from rowmill.rows import Row, Shard, pack_key

BOM = b"\xef\xbb\xbf"


def write(folder: Path, **contents: bytes) -> list[str]:
    """Files NAME.jsonl in a folder; returns the folder as a source."""
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name}.jsonl").write_bytes(content)
    return [str(folder)]


texts = st.text("a\n\r ", max_size=80).map(str.encode)


@given(texts, st.booleans(), st.integers(1, 30))
def test_shards_lie_end_to_end_and_end_behind_newlines(
    text: bytes, has_bom: bool, shard_bytes: int
) -> None:
    content = (BOM if has_bom else b"") + text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(content)
        source = open_source([str(path)], shard_bytes=shard_bytes)
    shards = source.shards
    slices = [content[shard.start : shard.stop] for shard in shards]

    assert list(range(len(shards))) == [shard.index for shard in shards]
    assert text == b"".join(slices)
    assert all(part.endswith(b"\n") for part in slices[:-1])
    assert all(slices) or len(slices) == 1
    assert [len(part.removesuffix(b"\n").split(b"\n")) if part else 0 for part in slices] == [
        shard.num_lines for shard in shards
    ]
    assert [1 + b"".join(slices[:at]).count(b"\n") for at in range(len(slices))] == [
        shard.first_line for shard in shards
    ]


def test_large_shards_have_about_the_size_asked_for(tmp_path: Path) -> None:
    paths = write(tmp_path, a=b'{"text": "abc"}\n' * 20_000)
    shards = open_source(paths, shard_bytes=50_000).shards

    assert len(shards) == 7
    assert max(shard.stop - shard.start for shard in shards) <= 100_000


def test_every_small_file_is_one_shard(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, a=b"{}\n", b=b"{}\n{}", c=b"\n"))

    assert [(shard.name, shard.num_lines) for shard in source.shards] == [
        ("a.jsonl", 1),
        ("b.jsonl", 2),
        ("c.jsonl", 1),
    ]
    assert source.num_lines == 4


def test_a_named_file_of_no_bytes_is_a_shard_of_no_lines(tmp_path: Path) -> None:
    write(tmp_path, a=b"")
    source = open_source([str(tmp_path / "a.jsonl")])

    assert [shard.num_lines for shard in source.shards] == [0]
    assert list(read_lines(source.shards[0])) == []


def test_digest_is_that_of_all_bytes_of_the_file(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, a=BOM + b"{}\n"))

    assert {"a.jsonl": xxhash.xxh3_128_hexdigest(BOM + b"{}\n")} == source.identity()


def test_source_survives_json(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, a=b"{}\n", b=b"{}\n"))

    assert source == msgspec.json.decode(msgspec.json.encode(source), type=Source)


def test_three_thousand_files_need_few_handles(tmp_path: Path) -> None:
    for number in range(3_000):
        end = b"\n" if number % 2 else b""
        (tmp_path / f"f{number:05d}.jsonl").write_bytes(b'{"id": "f%05d"}' % number + end)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        source = open_source([str(tmp_path)])
        chunks = [rows for shard in source.shards for rows in read_lines(shard)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert chunks == [
        [Row(pack_key(number, 0), b'{"id": "f%05d"}' % number)] for number in range(3_000)
    ]


def recorded(paths: list[str]) -> tuple[list[SourceFile], list[Shard]]:
    source = open_source(paths)
    return source.files, source.shards


def test_changed_gone_and_added_files_are_named(tmp_path: Path) -> None:
    paths = write(tmp_path / "in", a=b'{"x": 1}\n', b=b"{}\n", c=b"{}\n")
    files, _ = recorded(paths)
    write(tmp_path / "in", a=b'{"x": 2}\n', d=b'{"x": 3}\n')
    os.utime(tmp_path / "in/a.jsonl", ns=(1, 1))
    (tmp_path / "in/b.jsonl").unlink()
    expected = {"a.jsonl": "changed", "b.jsonl": "gone", "d.jsonl": "added"}

    assert expected == changed(files, paths=paths)
    assert expected == open_source(paths).changed(files)
    assert changed(files) == {"a.jsonl": "changed", "b.jsonl": "gone"}


def test_another_time_alone_is_no_change(tmp_path: Path) -> None:
    paths = write(tmp_path, a=b"{}\n", b=b"{}\n")
    files, shards = recorded(paths)
    os.utime(tmp_path / "a.jsonl", ns=(1, 1))

    assert changed(files) == {}
    again = open_recorded(files, shards, paths=paths)
    assert shards == again.shards
    assert again.files[0].mtime_ns == 1


def test_a_file_of_equal_size_and_time_is_not_read_again(tmp_path: Path) -> None:
    paths = write(tmp_path, a=b'{"x": 1}\n')
    files, shards = recorded(paths)
    write(tmp_path, a=b'{"x": 2}\n')
    os.utime(tmp_path / "a.jsonl", ns=(files[0].mtime_ns, files[0].mtime_ns))

    assert files == open_recorded(files, shards, paths=paths).files


def test_files_that_moved_with_their_content_are_read_from_the_new_place(
    tmp_path: Path,
) -> None:
    paths = write(tmp_path / "old", a=b"{}\n", b=b"{}\n")
    files, shards = recorded(paths)
    (tmp_path / "old").rename(tmp_path / "new")
    source = open_recorded(files, shards, paths=[str(tmp_path / "new")])

    assert [str(tmp_path / "new/a.jsonl"), str(tmp_path / "new/b.jsonl")] == [
        shard.path for shard in source.shards
    ]
    assert sum(len(rows) for shard in source.shards for rows in read_lines(shard)) == 2


def test_a_recorded_source_that_changed_is_refused_with_every_name(tmp_path: Path) -> None:
    files, shards = recorded(write(tmp_path, a=b"{}\n", b=b"{}\n"))
    write(tmp_path, a=b"{}\n{}\n")
    (tmp_path / "b.jsonl").unlink()

    with pytest.raises(BadSource, match=r"`a\.jsonl` \(changed\), `b\.jsonl` \(gone\)"):
        open_recorded(files, shards)


def spooled(folder: Path, content: bytes = b"{}\n" * 99) -> tuple[list[str], Source]:
    """A source of one plain and one packed file, its spool in `spool`."""
    paths = write(folder / "in", a=b"{}\n", b=gzip.compress(content))
    return paths, open_source(paths, shard_bytes=100, spool=folder / "spool")


def test_a_resume_finds_the_spool_and_unpacks_nothing(tmp_path: Path) -> None:
    paths, source = spooled(tmp_path)
    spool = tmp_path / "spool/00001.zst"
    state = spool.stat()
    (tmp_path / "in/b.jsonl").chmod(0o200)  # unreadable, unless the tests run as root
    (tmp_path / "spool").rename(tmp_path / "moved")
    again = open_recorded(source.files, source.shards, spool=tmp_path / "moved")

    assert [file.spool for file in again.files] == ["", "00001.zst"]
    assert {Path(shard.path) for shard in again.shards} == {
        tmp_path / "in/a.jsonl",
        tmp_path / "moved/00001.zst",
    }
    assert (tmp_path / "moved/00001.zst").stat().st_mtime_ns == state.st_mtime_ns
    assert sum(len(rows) for shard in again.shards for rows in read_lines(shard)) == 100
    assert changed(source.files, paths=paths) == {}


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("size", [None, 0, 20])
def test_a_spool_that_is_lost_or_cut_is_made_anew(
    tmp_path: Path, size: int | None, is_named: bool
) -> None:
    given_paths, source = spooled(tmp_path)
    paths = given_paths if is_named else None
    spool = tmp_path / "spool/00001.zst"
    whole = spool.read_bytes()
    if size is None:
        spool.unlink()
    else:
        os.truncate(spool, size)

    again = open_recorded(source.files, source.shards, paths=paths, spool=tmp_path / "spool")
    assert again.shards == source.shards
    assert spool.read_bytes() == whole


@pytest.mark.parametrize("place", ["region=1/a.jsonl", "region=2/a.jsonl", "elsewhere/b.txt"])
def test_a_lost_spool_of_a_folder_with_columns_is_made_anew_wherever_its_file_lies(
    tmp_path: Path, place: str
) -> None:
    first = tmp_path / "region=1/a.jsonl"
    write(first.parent, a=gzip.compress(b'{"x": 1}\n' * 99))
    source = open_source([str(first)], shard_bytes=100, spool=tmp_path / "spool")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    first.rename(tmp_path / place)
    for path in (tmp_path / "spool").iterdir():
        path.unlink()

    read = ReadConfig(format="jsonl") if place.endswith(".txt") else None
    for paths in [[str(tmp_path / place)]] + [None] * (first == tmp_path / place):
        again = open_recorded(
            source.files, source.shards, paths=paths, spool=tmp_path / "spool", read=read
        )
        assert again.shards == source.shards
        assert {shard.partitions for shard in again.shards} == {(("region", "1"),)}
        (tmp_path / "spool/00000.zst").unlink()


def test_a_spool_that_would_be_another_is_refused(tmp_path: Path) -> None:
    paths, source = spooled(tmp_path)
    (tmp_path / "spool/00001.zst").unlink()
    shards = [
        msgspec.structs.replace(shard, frame=shard.frame and (shard.frame[0], 9_999))
        for shard in source.shards
    ]

    with pytest.raises(BadSource, match="unpacked anew, it is not cut as it was"):
        open_recorded(source.files, shards, paths=paths, spool=tmp_path / "spool")


def test_a_packed_file_that_changed_is_named(tmp_path: Path) -> None:
    paths, source = spooled(tmp_path)
    (tmp_path / "in/b.jsonl").write_bytes(gzip.compress(b"{}\n" * 98))

    assert changed(source.files, paths=paths) == {"b.jsonl": "changed"}


def test_standard_input_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n{}\n")))
    source = open_source(["-"], spool=tmp_path / "spool")
    monkeypatch.setattr(sys, "stdin", None)

    assert source.num_lines == 2
    for paths in (None, ["-"]):
        assert changed(source.files, paths=paths) == {}
        again = open_recorded(
            source.files, source.shards, paths=paths, spool=tmp_path / "spool"
        )
        assert again.shards == source.shards
    (tmp_path / "spool/00000.zst").unlink()
    with pytest.raises(BadSource, match="holds what standard input gave, and is gone"):
        open_recorded(source.files, source.shards, spool=tmp_path / "spool")
    assert changed(source.files, paths=write(tmp_path / "in", a=b"{}\n")) == {
        "stdin": "not named",
        "a.jsonl": "added",
    }


def test_a_source_with_spools_survives_json(tmp_path: Path) -> None:
    _, source = spooled(tmp_path)

    assert source == msgspec.json.decode(msgspec.json.encode(source), type=Source)


def test_a_format_that_the_job_names_holds_whatever_the_suffix(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, a=b"a,b\n1,2\n"), read=ReadConfig(format="csv"))

    assert [(shard.format, shard.num_lines) for shard in source.shards] == [("csv", 1)]


def test_files_that_cannot_be_read_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    (tmp_path / "b.csv").write_bytes(b"")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b"{}\n")[:-5])

    with pytest.raises(BadSource, match="3 inputs cannot be read") as caught:
        open_source(
            [str(tmp_path / n) for n in ("a.parquet", "b.csv", "c.jsonl.gz")], spool=tmp_path
        )
    for name in ("a.parquet`", "b.csv`", "c.jsonl.gz`"):
        assert name in str(caught.value)


def test_known_files_are_left_out(tmp_path: Path) -> None:
    first = open_source(write(tmp_path, a=b"{}\n"))
    second = open_source(
        write(tmp_path, a=b"{}\n", b=b"{}\n{}"), known=first.files, first_index=7
    )

    assert [file.name for file in second.files] == ["b.jsonl"]
    assert [shard.index for shard in second.shards] == [7]


def test_many_files_are_told_of_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TELL_EVERY_S", 0.0)
    told: list[str] = []

    open_source(write(tmp_path / "in", a=b"{}", b=b"{}", c=b"{}"), tell=told.append)

    assert told == ["input   1 of 3 files read", "input   2 of 3 files read"]
