"""One file and its mended copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowmill.mend import copying, lines, text
from rowmill.mend.copying import copy_mended
from rowmill.mend.mends import MendedFile, Mends
from rowmill.read.listing import list_files
from rowmill.storage import LocalStorage


def copied(tmp_path: Path, content: bytes) -> tuple[bytes, bytes | None, MendedFile]:
    """The copy, what is beside it, and what was told."""
    source = tmp_path / "in.jsonl"
    source.write_bytes(content)
    (file,), _ = list_files([str(source)], any_encoding=True)
    storage = LocalStorage(str(tmp_path / "copy"))
    told = copy_mended(file, storage, "in.jsonl")
    copy, cut = storage.path("in.jsonl"), storage.path("in.jsonl.cut")
    assert told.num_bytes == len(copy.read_bytes())
    assert source.read_bytes() == content
    assert {path.name for path in storage.root.iterdir()} <= {copy.name, cut.name}
    return copy.read_bytes(), cut.read_bytes() if cut.exists() else None, told


ROW, OTHER = b'{"a": "\xc3\xa9"}', b'{"b": [1]}'


@pytest.mark.parametrize(
    ("content", "copy", "mends"),
    [
        (ROW + b"\n" + OTHER + b"\n", ROW + b"\n" + OTHER + b"\n", Mends()),
        (ROW, ROW + b"\n", Mends(final_newlines=1)),
        (b"\xef\xbb\xbf" + ROW + b"\n", ROW + b"\n", Mends(boms=1)),
        (ROW + b"\r\n" + OTHER + b"\r\n", ROW + b"\n" + OTHER + b"\n", Mends(line_ends=2)),
        (ROW + b"\r" + OTHER + b"\r", ROW + b"\n" + OTHER + b"\n", Mends(line_ends=2)),
        (ROW + b"\r", ROW + b"\n", Mends(line_ends=1, final_newlines=1)),
        (b"\n \n\t\r\n" + ROW + b"\n\n", ROW + b"\n", Mends(blank_lines=4)),
        (b'{"a":\r1}', b'{"a":\r1}\n', Mends(final_newlines=1)),
        (b'{"a": "\r"}', b'{"a": "\\r"}\n', Mends(characters=1, final_newlines=1)),
        (b"not json", b"not json\n", Mends(final_newlines=1)),
        (b"", b"", Mends()),
        (b"\n", b"", Mends(blank_lines=1)),
        (b" ", b"", Mends(blank_lines=1)),
        (b"\xef\xbb\xbf", b"", Mends(boms=1, blank_lines=1)),
    ],
)
def test_each_fault_is_mended_and_counted(
    tmp_path: Path, content: bytes, copy: bytes, mends: Mends
) -> None:
    found, cut, told = copied(tmp_path, content)

    assert (found, cut, told.mends) == (copy, None, mends)


@pytest.mark.parametrize(
    "cut", [b'{"a": "x', b'\xef\xbb\xbf{"a": 1', b"\0\0\0", b'{"a": "\xc3']
)
def test_a_cut_end_is_kept_beside_the_copy(tmp_path: Path, cut: bytes) -> None:
    copy, beside, told = copied(tmp_path, ROW + b"\n" + cut)

    assert (copy, beside) == (ROW + b"\n", cut)
    assert told.mends == Mends(cut_lines=1, cut_bytes=len(cut))
    assert "is in `in.jsonl.cut`" in told.line()


def test_a_line_with_a_latin1_byte_at_the_end_is_not_cut(tmp_path: Path) -> None:
    line = b'{"a": "caf\xe9"}'

    copy, beside, told = copied(tmp_path, ROW + b"\n" + line)

    assert (copy, beside) == (ROW + b"\n" + line + b"\n", None)
    assert told.mends == Mends(final_newlines=1, not_utf8=1)


def test_utf16_that_ends_within_a_line_end_loses_nothing(tmp_path: Path) -> None:
    content = f"\ufeff{ROW.decode()}\n".encode("utf-16-le")

    copy, beside, told = copied(tmp_path, content[:-1])

    assert (copy, beside) == (ROW + b"\n", b"\n")
    assert told.line() == (
        "in.jsonl: UTF-16 written as UTF-8, final newline added, cut last line left out;"
        " its cut end (1 byte) is in `in.jsonl.cut`"
    )


def test_a_line_that_ends_within_a_character_is_cut(tmp_path: Path) -> None:
    content = "\ufeffnot json\u65e5".encode("utf-16-le")

    copy, beside, told = copied(tmp_path, content[:-1])

    assert (copy, beside) == (b"", b"not json\xe5")
    assert told.mends == Mends(transcoded=1, cut_lines=1, cut_bytes=9)


def test_a_line_that_is_too_long_is_carried_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (copying, lines):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 30)
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    monkeypatch.setattr(text.whole_lines, "__kwdefaults__", {"max_line_bytes": 30})
    long = b'{"a": "\t%b"}\r' % (b"x" * 60)

    for end in (b"\n", b""):
        content = ROW + b"\r\n" + long + end
        copy, beside, told = copied(tmp_path, content)

        assert (copy, beside) == (ROW + b"\n" + long + b"\n", None)
        assert told.mends == Mends(line_ends=1, final_newlines=not end)
