"""Spools: whole or not there, one frame a slice, damage noticed."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import StorageError
from rowmill.read.spool import new_spool
from rowmill.read.text import blocks
from rowmill.rows import Shard


def spooled(folder: Path, *slices: bytes) -> list[Shard]:
    """Shards of a spool `a.zst` with a frame for each slice."""
    shards: list[Shard] = []
    start = 0
    with new_spool(folder, "a.zst") as spool:
        for text in slices:
            spool.write(text[:3])
            spool.write(text[3:])
            frame = spool.end_frame()
            stop = start + len(text)
            path = str(folder / "a.zst")
            shards.append(Shard(len(shards), path, "a.gz", start, stop, 1, 0, frame=frame))
            start = stop
    return shards


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
def test_each_frame_is_read_alone(
    tmp_path_factory: pytest.TempPathFactory, slices: list[bytes], chunk_bytes: int
) -> None:
    shards = spooled(tmp_path_factory.mktemp("spool"), *slices)

    for shard, text in zip(reversed(shards), reversed(slices), strict=True):
        parts = list(blocks(shard, chunk_bytes=chunk_bytes))
        assert b"".join(parts) == text
        assert all(0 < len(part) <= chunk_bytes for part in parts)


def test_a_spool_that_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with new_spool(tmp_path / "spool", "a.zst") as spool:
            spool.write(b"text" * 100_000)
            spool.end_frame()
            assert [path.name for path in (tmp_path / "spool").iterdir()] == ["a.zst.draft"]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert list((tmp_path / "spool").iterdir()) == []


def test_a_draft_of_a_killed_process_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.zst.draft").write_bytes(b"half a spool" * 99)
    shards = spooled(tmp_path, b"text")

    assert b"".join(blocks(shards[0])) == b"text"
    assert [path.name for path in tmp_path.iterdir()] == ["a.zst"]


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageError, match=r"a\.zst\.draft`: cannot be written \("):
        spooled(tmp_path / "file", b"text")


def test_a_damaged_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    shards = spooled(tmp_path, b"first", b"some text of the second slice, " * 3, b"third")
    path = tmp_path / "a.zst"
    whole = path.read_bytes()
    begin, end = shards[1].frame or (0, 0)
    noticed = 0
    for at in range(begin, end):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            text = b"".join(blocks(shards[1]))
        except StorageError as error:
            assert "what was unpacked there of `a.gz` is damaged; delete" in str(error)  # noqa: PT017
            noticed += 1
        else:
            assert text == b"some text of the second slice, " * 3
        assert b"".join(blocks(shards[2])) == b"third"
    assert noticed > 0.9 * (end - begin)


def test_a_spool_that_is_cut_is_noticed(tmp_path: Path) -> None:
    shard = spooled(tmp_path, b"some text of the slice")[0]
    for size in range(Path(shard.path).stat().st_size - 1, -1, -1):
        os.truncate(shard.path, size)
        with pytest.raises(StorageError, match="is damaged"):
            list(blocks(shard))


def test_never_more_than_the_slice_is_given(tmp_path: Path) -> None:
    shard = spooled(tmp_path, b"0123456789")[0]
    for stop in (0, 3, 9, 11):
        other = msgspec.structs.replace(shard, stop=stop)
        taken = bytearray()
        with pytest.raises(StorageError, match="is damaged"):
            taken.extend(itertools.chain.from_iterable(blocks(other, chunk_bytes=2)))
        assert len(taken) <= stop
