"""A file as it is stored -> its text: gzip, Zstandard, bzip2 and xz taken off, by content, never by name.

Promises: every member (frame, stream) of a packed file, or an error that names the file; zero bytes
between members and behind the last are padding; the digest is that of the bytes as stored, all of them;
a file that becomes out of all proportion larger is refused.
Knows nothing of: what the text says.
Memory: 1 MiB, and what the format asks for (xz: its dictionary).
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, Self, cast

import xxhash

from rowmill.errors import BadSource
from rowmill.read.bombs import refuse_bomb
from rowmill.read.opened import FileState, LocalFile, OpenFile, open_stream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from rowmill.read.zstd import ZstdDecompressor

    _Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor | ZstdDecompressor

Container = Literal["", "gzip", "zstd", "bzip2", "xz"]
"""What text is packed with; empty: nothing."""

STDIN = "-"
"""The path that stands for standard input."""
HEAD_BYTES = 512
"""Enough of a file to know what it is: the mark of a tar archive ends at byte 262."""
PIECE_BYTES = 1 << 16
"""Packed bytes unpacked at once. What is left of a piece is copied for each member, so small is good
where members are tiny."""

_PACKED = re.compile(
    rb"(?P<gzip>\x1f\x8b)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bzip2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
    rb"|(?P<xz>\xfd7zXZ\0|\x5d\0\0)"
)
_WORDS = {"gzip": "gzip", "zstd": "Zstandard", "bzip2": "bzip2", "xz": "xz"}


def container_of(head: bytes) -> Container:
    """What the first bytes of a file say that it is packed with."""
    match = _PACKED.match(head)
    return cast("Container", match.lastgroup) if match else ""


def container_words(container: Container) -> str:
    """The container as people call it."""
    return _WORDS[container]


def open_text(path: str, container: Container | None = None, *, version: str = "") -> Text:
    """Open a file, or standard input (`-`), to be read from its beginning.

    Args:
        container: None looks at the first bytes.
        version: of an object in a store, the one that is meant.
    Raises: BadSource where it cannot be opened.
    """
    if path == STDIN:
        if not sys.stdin:
            reason = "`-`: standard input is closed; give rows to it, or name a file"
            raise BadSource(reason=reason)
        stored = Stored(path, sys.stdin.buffer)
    else:
        try:
            stored = Stored(path, open_stream(path, version))
        except OSError as error:
            raise unreadable(path, error) from error
    if container is None:
        container = container_of(stored.peek(HEAD_BYTES))
    return Text(stored, container)


def unreadable(path: str, error: OSError) -> BadSource:
    """What is raised where the system gives no bytes of a file."""
    return BadSource(reason=f"`{path}`: cannot be read ({error.strerror or error})")


class _Source(Protocol):
    """Something to read bytes from."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None: ...


class _Peeked:
    """Fills whole buffers from a source, and lets one look ahead."""

    def __init__(self) -> None:
        self._ahead = b""

    def _next(self, view: memoryview) -> int:
        raise NotImplementedError

    def peek(self, num_bytes: int) -> bytes:
        """The next bytes, which are still to come; fewer at the end alone."""
        if len(self._ahead) < num_bytes:
            more = bytearray(num_bytes - len(self._ahead))
            self._ahead += more[: self._fill(memoryview(more))]
        return self._ahead[:num_bytes]

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer`; fewer bytes come at the end alone, so that blocks depend on content only."""
        view = memoryview(buffer).cast("B")
        ahead = self._ahead[: len(view)]
        if ahead:
            view[: len(ahead)] = ahead
            self._ahead = self._ahead[len(ahead) :]
        return len(ahead) + self._fill(view[len(ahead) :])

    def _fill(self, view: memoryview) -> int:
        filled = 0
        while filled < len(view) and (num_bytes := self._next(view[filled:])):
            filled += num_bytes
        return filled


class Stored(_Peeked, io.RawIOBase):
    """The bytes of a file as they lie there, counted and hashed on their way."""

    def __init__(self, path: str, opened: OpenFile | BinaryIO) -> None:
        super().__init__()
        self.path = path
        self.num_bytes = 0
        self._opened = opened
        self._hasher = xxhash.xxh3_128()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if self.path != STDIN and not self.closed:
            self._opened.close()
        super().close()

    def digest(self) -> str:
        """xxh3_128 of the bytes read so far, in hex."""
        return self._hasher.hexdigest()

    def state(self) -> FileState | None:
        """Of the open file; None of an object, which is read in one version or not at all."""
        return self._opened.state() if isinstance(self._opened, LocalFile) else None

    def _next(self, view: memoryview) -> int:
        try:
            num_bytes = cast("_Source", self._opened).readinto(view) or 0
        except OSError as error:
            raise unreadable(self.path, error) from error
        self._hasher.update(view[:num_bytes])
        self.num_bytes += num_bytes
        return num_bytes


class Text(_Peeked):
    """The text of a file, unpacked. `stored` tells of the bytes it is made from, once it has ended."""

    def __init__(self, stored: Stored, container: Container) -> None:
        super().__init__()
        self.stored = stored
        self.container = container
        self._source: _Source
        self._wrong: tuple[type[Exception], ...] = ()
        self._num_bytes = 0
        self._open_source()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stored.close()

    def skip(self, num_bytes: int) -> None:
        """Pass over bytes."""
        self.readinto(bytearray(num_bytes))

    def _open_source(self) -> None:
        if not self.container:
            self._source = self.stored
        elif self.container == "gzip":
            from isal import igzip, isal_zlib  # 3 times as fast as the standard library

            opened = igzip.IGzipFile(fileobj=self.stored, mode="rb")  # type: ignore[no-untyped-call]
            self._source = opened
            self._wrong = (OSError, zlib.error, cast("type[Exception]", isal_zlib.IsalError))
        elif self.container == "zstd":
            from rowmill.read.zstd import ZstdDecompressor, ZstdError

            self._source = _Members(self.stored, ZstdDecompressor)
            self._wrong = (ZstdError,)
        elif self.container == "bzip2":
            self._source = _Members(self.stored, bz2.BZ2Decompressor)
            self._wrong = (OSError,)
        else:
            self._source = _Members(self.stored, lzma.LZMADecompressor)
            self._wrong = (lzma.LZMAError,)

    def _next(self, view: memoryview) -> int:
        words = _WORDS.get(self.container, "")
        try:
            num_bytes = self._source.readinto(view) or 0
        except EOFError as error:
            reason = f"`{self.stored.path}`: the compressed data ends early ({words}); get the file anew"
            raise BadSource(reason=reason) from error
        except self._wrong as error:
            reason = (
                f"`{self.stored.path}`: the compressed data is damaged, or has a wrong checksum"
                f" ({words}: {error}); get the file anew"
            )
            raise BadSource(reason=reason) from error
        if self.container:
            self._num_bytes += num_bytes
            refuse_bomb(
                self.stored.path, packed=self.stored.num_bytes, unpacked=self._num_bytes
            )
        return num_bytes


class _Members:
    """Members one after the other; the library's own files pass over what follows padding."""

    def __init__(self, stored: Stored, begin: Callable[[], _Decompressor]) -> None:
        self._stored = stored
        self._begin = begin
        self._open: _Decompressor | None = None
        self._packed = b""
        """Read, and not yet unpacked."""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Some bytes; none at the end alone.

        Raises: EOFError where the file ends within a member.
        """
        view = memoryview(buffer).cast("B")
        while self._open or self._next_member():
            text = self._unpack(len(view))
            if text:
                view[: len(text)] = text
                return len(text)
        return 0

    def _next_member(self) -> bool:
        self._packed = self._packed.lstrip(b"\0")
        while not self._packed and (piece := self._stored.read(PIECE_BYTES)):
            self._packed = piece.lstrip(b"\0")
        if self._packed:
            self._open = self._begin()
        return bool(self._packed)

    def _unpack(self, max_bytes: int) -> bytes:
        unpacking = self._open
        if unpacking is None:
            return b""
        packed = b""
        if unpacking.needs_input:
            packed = self._packed or self._stored.read(PIECE_BYTES) or b""
            self._packed = b""
            if not packed:
                raise EOFError
        text = unpacking.decompress(packed, max_bytes)
        if unpacking.eof:
            self._packed = unpacking.unused_data
            self._open = None
        return text
