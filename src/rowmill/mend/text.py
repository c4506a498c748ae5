"""File -> its text in UTF-8, in blocks -> whole lines.

Promises: all bytes of the file, or an error that names it; bytes that are no character are passed on, not replaced.
Knows nothing of: JSON, what is mended.
Memory: one block (1 MiB; what UTF-16 makes of it), or the longest line up to `MAX_LINE_BYTES`.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from rowmill.errors import BadSource
from rowmill.read.jsonl import MAX_LINE_BYTES
from rowmill.read.listing import Found
from rowmill.read.opened import LocalFile, open_stream

BLOCK_BYTES = 1 << 20

_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class SourceText:
    """The text of one file of the input."""

    def __init__(self, file: Found) -> None:
        self._file = file
        self._codec = ""
        self.rest = b""
        """Once all blocks are read: bytes of half a character at the end of UTF-16 or UTF-32 text."""
        head = next(self._raw_blocks(4), b"")
        for mark, codec in _ENCODINGS:
            if head.startswith(mark):
                self._codec = codec
                break

    @property
    def encoding(self) -> str:
        """`UTF-16` or `UTF-32`; empty for UTF-8, or what passes for it."""
        return self._codec[:6].upper()

    def blocks(self) -> Generator[bytes, None, None]:
        """All of the text as UTF-8. A mark at its beginning stays, unless it told the encoding.

        Raises:
            BadSource: it cannot be read, or changed meanwhile, or is no UTF-32.
        """
        if not self._codec:
            return self._raw_blocks(BLOCK_BYTES)
        return self._decoded()

    def _decoded(self) -> Generator[bytes, None, None]:
        """Halves of surrogate pairs pass: they are no UTF-8 then, and their line stays a bad one."""
        decoder = codecs.getincrementaldecoder(self._codec)("surrogatepass")
        is_first = True
        for block in self._raw_blocks(BLOCK_BYTES):
            try:
                text = decoder.decode(block)
            except UnicodeDecodeError as error:
                reason = (
                    f"`{self._file.path}`: begins as {self.encoding} text and holds what is none;"
                    " write it as UTF-8"
                )
                raise BadSource(reason=reason) from error
            if is_first and text:
                text, is_first = text.removeprefix("\ufeff"), False
            if text:
                yield text.encode("utf-8", "surrogatepass")
        self.rest = decoder.getstate()[0]

    def _raw_blocks(self, block_bytes: int) -> Generator[bytes, None, None]:
        file = self._file
        try:
            with open_stream(file.path, file.version) as opened:
                while block := opened.read(block_bytes):
                    yield block
                # An object is read in one version, or not to its end.
                state = opened.state() if isinstance(opened, LocalFile) else None
        except OSError as error:
            reason = f"`{file.path}`: cannot be read ({error.strerror or error})"
            raise BadSource(reason=reason) from error
        if state and (state.size, state.mtime_ns) != (file.size, file.mtime_ns):
            reason = f"`{file.path}`: changed while it was read; wait until it is complete"
            raise BadSource(reason=reason)


class Piece(NamedTuple):
    """Neighbouring whole lines, or a part of one that is too long to be looked at."""

    text: bytes
    is_long: bool = False
    """Part of a line of over `MAX_LINE_BYTES`."""


def whole_lines(
    blocks: Iterable[bytes], *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Piece]:
    """All of the blocks, cut behind line feeds; only the last piece may lack one."""
    held: list[bytes] = []
    num_held = 0
    is_long = False
    for given in blocks:
        block = given
        if is_long:
            stop = block.find(b"\n") + 1
            yield Piece(block[:stop] if stop else block, is_long=True)
            if not stop:
                continue
            is_long, block = False, block[stop:]
        cut = block.rfind(b"\n") + 1
        if cut:
            yield Piece(b"".join((*held, block[:cut])))
            held.clear()
            num_held = 0
        held.append(block[cut:])
        num_held += len(held[-1])
        if num_held > max_line_bytes:
            yield Piece(b"".join(held), is_long=True)
            held.clear()
            num_held, is_long = 0, True
    if num_held:
        yield Piece(b"".join(held))
