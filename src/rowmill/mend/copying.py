"""One file of the input -> its mended copy, and what was done.

Promises: every line that is not blank is in the copy, in order, or beside it in `NAME.cut`;
the file is only read; the copy ends with a line feed, or is empty.
Knows nothing of: other files, ids.
Memory: one block of text, or the longest line up to 64 MiB. Time: two reads of the file's beginning, one of the rest;
all of it twice where it has no line feed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from rowmill.mend.lines import is_cut, is_plain, is_row, mend_line
from rowmill.mend.mends import MendedFile, Mends
from rowmill.mend.text import SourceText, whole_lines
from rowmill.read.jsonl import MAX_LINE_BYTES
from rowmill.read.listing import Found
from rowmill.storage import LocalStorage
from rowmill.storage.drafts import Draft, open_draft


def copy_mended(file: Found, storage: LocalStorage, name: str) -> MendedFile:
    """Write a mended copy of a file under `name`, and its cut end beside it if it has one.

    Raises:
        BadSource: the file cannot be read, or changed meanwhile.
        StorageError: the copy cannot be written.
    """
    text = SourceText(file)
    told = MendedFile(name=file.name, copy=name, encoding=text.encoding)
    told.mends.transcoded = bool(text.encoding)
    draft = open_draft(storage, name)
    try:
        copy = _Copy(draft, told.mends)
        for piece in whole_lines(_blocks(text, told.mends)):
            copy.add(piece.text, is_long=piece.is_long)
        cut = copy.end(text.rest)
        draft.finish()
    except BaseException:
        draft.abandon()
        raise
    if cut:
        told.mends.cut_lines, told.mends.cut_bytes = 1, len(cut)
        beside = open_draft(storage, f"{name}.cut")
        beside.write(cut)
        beside.finish()
    told.num_bytes = copy.num_bytes
    return told


def _blocks(text: SourceText, mends: Mends) -> Iterator[bytes]:
    """The text of a file, with line feeds at the ends of its lines."""
    if not _ends_lines_with_cr(text):
        yield from text.blocks()
        return
    for block in text.blocks():
        mends.line_ends += block.count(b"\r")
        yield block.replace(b"\r", b"\n")


def _ends_lines_with_cr(text: SourceText) -> bool:
    """Whether there is no line feed at all, but CR: and not within what is one row."""
    seen: list[bytes] = []
    num_bytes = 0
    has_cr = False
    with closing(text.blocks()) as blocks:
        for block in blocks:
            if b"\n" in block:
                return False
            has_cr |= b"\r" in block
            num_bytes += len(block)
            if num_bytes <= MAX_LINE_BYTES:
                seen.append(block)
    if not has_cr or num_bytes > MAX_LINE_BYTES:
        return has_cr
    line = mend_line(b"".join(seen), Mends())
    return line is None or not is_row(line)


class _Copy:
    """A copy in the making. The last line is held back until it is known to be the last."""

    def __init__(self, draft: Draft, mends: Mends) -> None:
        self._draft, self._mends = draft, mends
        self._is_open = False
        """What was written ends within a line."""
        self._last = b""
        """The last line of the file, where no line feed ends it."""
        self.num_bytes = 0

    def add(self, text: bytes, *, is_long: bool) -> None:
        """Take in whole lines, a part of a long one, or the last line."""
        if is_long:
            self._write(text)
            self._is_open = not text.endswith(b"\n")
        elif not text.endswith(b"\n"):
            self._last = text
        elif is_plain(text):
            self._write(text)
        else:
            lines = text.split(b"\n")
            lines.pop()
            mended = [mend_line(line, self._mends) for line in lines]
            kept = [line for line in mended if line is not None]
            if kept:
                self._write(b"\n".join([*kept, b""]))

    def end(self, rest: bytes) -> bytes:
        """Write the last line; what is kept beside the copy instead.

        Args:
            rest: bytes behind the text that are half a character.
        """
        if self._is_open:
            self._write(b"\n")
            self._mends.final_newlines += 1
        if not self._last:
            return rest
        done = Mends()
        line = mend_line(self._last, done)
        if line is not None and not is_row(line) and (rest or is_cut(line)):
            return self._last + rest
        self._mends.add(done)
        if line is not None:
            self._write(line + b"\n")
            self._mends.final_newlines += 1
        return rest

    def _write(self, text: bytes) -> None:
        self._draft.write(text)
        self.num_bytes += len(text)
