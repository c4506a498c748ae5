"""Packed bytes as text: members, padding, damage, and the digest of what was stored."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadSource
from rowmill.read import unpack as module
from rowmill.read.unpack import Container, container_of, open_text
from rowmill.read.zstd import ZstdCompressor

SKIPPABLE = b"\x5a\x2a\x4d\x18\x05\0\0\0hello"


def zstd(text: bytes) -> bytes:
    packing = ZstdCompressor(options={201: 1})  # with a checksum, as the tool writes it
    return packing.compress(text) + packing.flush()


def gzip_with_names(text: bytes) -> bytes:
    """A member with every optional part of the header."""
    packing = zlib.compressobj(wbits=-15)
    body = packing.compress(text) + packing.flush()
    head = b"\x1f\x8b\x08\x1e\0\0\0\0\0\xff\x05\0extra" + b"n" * 90 + b"\0comment\0"
    head += (zlib.crc32(head) & 0xFFFF).to_bytes(2, "little")
    tail = zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(4, "little")
    return head + body + tail


PACK: dict[Container, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
containers = st.sampled_from(sorted(PACK))
members = st.lists(st.binary(max_size=60), min_size=1, max_size=4)


def text_of(packed: bytes, *, buffer_bytes: int = 1 << 16) -> tuple[bytes, str]:
    """The text, and the digest told of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(packed)
        buffer, pieces = bytearray(buffer_bytes), []
        with open_text(str(path)) as text:
            while num_bytes := text.readinto(buffer):
                pieces.append(bytes(buffer[:num_bytes]))
            return b"".join(pieces), text.stored.digest()


def refusal(packed: bytes) -> str:
    with pytest.raises(BadSource) as caught:
        text_of(packed)
    assert re.match(r"`/.*/a`: ", str(caught.value))
    return str(caught.value)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 5)


@pytest.mark.usefixtures("small_pieces")
@given(containers, members, st.integers(1, 50), st.lists(st.integers(0, 9), min_size=4))
def test_all_members_are_read_whatever_padding_is_between(
    container: Container, texts: list[bytes], buffer_bytes: int, padding: list[int]
) -> None:
    packed = b"".join(
        PACK[container](text) + bytes(zeros)
        for text, zeros in zip(texts, padding, strict=False)
    )

    assert container_of(packed) == container
    assert text_of(packed, buffer_bytes=buffer_bytes) == (
        b"".join(texts),
        xxhash.xxh3_128_hexdigest(packed),
    )


@pytest.mark.usefixtures("small_pieces")
@given(containers, members, st.data())
def test_a_cut_file_is_whole_members_or_an_error(
    container: Container, texts: list[bytes], data: st.DataObject
) -> None:
    each = [PACK[container](text) for text in texts]
    packed = b"".join(each)
    length = data.draw(st.integers(6, len(packed) - 1))
    whole, ends = b"", {0: b""}
    for one, text in zip(each, texts, strict=True):
        whole += text
        ends[max(ends) + len(one)] = whole
    if container_of(packed[:length]) != container:
        return  # so little is left that it counts as text, and is no JSON
    if length in ends:
        assert text_of(packed[:length])[0] == ends[length]
    else:
        refusal(packed[:length])


@given(containers, st.binary(min_size=1, max_size=60), st.data())
def test_a_flipped_bit_is_an_error_or_harmless(
    container: Container, text: bytes, data: st.DataObject
) -> None:
    packed = bytearray(PACK[container](text))
    packed[data.draw(st.integers(10, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found, _ = text_of(bytes(packed))
    except BadSource:
        return

    assert found == text


@pytest.mark.parametrize("container", sorted(PACK))
def test_damage_is_told_with_the_file(container: Container) -> None:
    packed = PACK[container](b"some text, and some more")
    damaged = bytearray(packed)
    damaged[-6 if container == "gzip" else -2] ^= 0xFF

    assert "the compressed data ends early" in refusal(packed[:-1])
    assert "is damaged, or has a wrong checksum" in refusal(bytes(damaged))
    assert "get the file anew" in refusal(packed + b"some text behind it")


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5), st.integers(1, 40))
def test_gzip_headers_of_every_kind_are_passed_over(texts: list[bytes], step: int) -> None:
    packed = b"".join(map(gzip_with_names, texts))
    buffer, found = bytearray(step), b""
    stored = module.Stored("a", io.FileIO(io_file(packed)))
    with module.Text(stored, "gzip") as text:
        while num_bytes := text.readinto(buffer):
            found += buffer[:num_bytes]

    assert found == b"".join(texts)


def io_file(content: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return os.dup(file.fileno())


def test_skippable_frames_are_passed_over() -> None:
    packed = SKIPPABLE + zstd(b"a") + SKIPPABLE + zstd(b"b") + SKIPPABLE

    assert text_of(packed)[0] == b"ab"


def test_the_older_format_of_xz_is_read() -> None:
    packed = lzma.compress(b"text", format=lzma.FORMAT_ALONE)

    assert text_of(packed)[0] == b"text"


def test_large_members_are_read_whole() -> None:
    lines = b"".join(b'{"id": %d}\n' % number for number in range(100_000))
    for pack in PACK.values():
        assert text_of(pack(lines) + pack(lines))[0] == lines + lines


def test_looking_ahead_takes_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"0123456789"))
    with open_text(str(tmp_path / "a")) as text:
        assert text.peek(3) == b"012"
        assert text.peek(5) == b"01234"
        text.skip(2)
        assert text.peek(99) == b"23456789"
        buffer = bytearray(4)
        assert [text.readinto(buffer), bytes(buffer)] == [4, b"2345"]
        assert [text.readinto(buffer), bytes(buffer)] == [4, b"6789"]
        assert text.readinto(buffer) == 0


def test_a_file_that_is_gone_is_told() -> None:
    with pytest.raises(BadSource, match=r"`/no/such`: cannot be read \(No such file"):
        open_text("/no/such")
