"""Files -> UTF-8 and whole lines, wherever blocks end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadSource
from rowmill.mend import text as module
from rowmill.mend.text import SourceText, whole_lines
from rowmill.read.listing import Found


def found(path: Path, content: bytes) -> Found:
    path.write_bytes(content)
    state = path.stat()
    return Found(str(path), path.name, state.st_size, state.st_mtime_ns)


@given(st.lists(st.binary(min_size=1, max_size=9)), st.integers(1, 12))
def test_pieces_are_the_text_cut_behind_line_feeds(blocks: list[bytes], limit: int) -> None:
    pieces = list(whole_lines(blocks, max_line_bytes=limit))

    assert b"".join(piece.text for piece in pieces) == b"".join(blocks)
    assert all(piece.text for piece in pieces)
    assert all(p.text.endswith(b"\n") for p in pieces[:-1] if not p.is_long)


@given(st.lists(st.integers(0, 20), min_size=1), st.integers(1, 7))
def test_only_parts_of_long_lines_are_called_so(lengths: list[int], block: int) -> None:
    text = b"".join(b"x" * length + b"\n" for length in lengths)
    blocks = [text[at : at + block] for at in range(0, len(text), block)]

    pieces = list(whole_lines(blocks, max_line_bytes=10))

    kept = b"".join(piece.text for piece in pieces if not piece.is_long)
    left = [len(line) for line in kept.split(b"\n")[:-1]]
    # where a line ends in the block in which it grows too long, it may be kept
    assert [n for n in left if n <= 10] == [n for n in lengths if n <= 10]
    assert max([0, *left]) <= 10 + block


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("block_bytes", [3, 1 << 20])
def test_other_encodings_become_utf8(
    tmp_path: Path, codec: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    told = '{"a": "\xe9\u65e5\U0001f600\ufeff"}\r\n'
    content = f"\ufeff{told}".encode(codec)

    text = SourceText(found(tmp_path / "x", content))

    assert b"".join(text.blocks()) == told.encode()
    assert text.encoding == codec[:6].upper()
    assert text.rest == b""


def test_half_a_character_at_the_end_is_kept(tmp_path: Path) -> None:
    content = "\ufeffab\U0001f600".encode("utf-16-le")

    for cut in (1, 2, 3):
        text = SourceText(found(tmp_path / "x", content[:-cut]))

        assert b"".join(text.blocks()) == b"ab"
        assert text.rest == content[-4:-cut]


def test_half_a_pair_inside_is_no_utf8_afterwards(tmp_path: Path) -> None:
    text = SourceText(found(tmp_path / "x", b"\xff\xfea\0\x00\xd8b\0"))

    assert b"".join(text.blocks()) == b"a\xed\xa0\x80b"


def test_what_only_begins_as_utf32_is_refused(tmp_path: Path) -> None:
    text = SourceText(found(tmp_path / "x", b"\xff\xfe\0\0a\0\0\0\xff\xff\xff\xff"))

    with pytest.raises(BadSource, match="begins as UTF-32 text and holds what is none"):
        list(text.blocks())


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    file = found(tmp_path / "x", b"a\n")
    os.utime(file.path, ns=(1, 1))

    with pytest.raises(BadSource, match="changed while it was read"):
        list(SourceText(file).blocks())


def test_utf8_is_passed_on_as_it_is(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbfa\xff\r\n"
    text = SourceText(found(tmp_path / "x", content))

    assert (b"".join(text.blocks()), text.encoding) == (content, "")
