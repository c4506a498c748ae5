"""A path, of this machine or of an object store -> an open file: the one place that knows both.

Promises: what is opened is of one version; what cannot be opened or read is an OSError with the reason.
Knows nothing of: what stands in files.
Memory: of objects, two blocks (8 MiB).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from rowmill.storage.addresses import is_remote
from rowmill.storage.remote import RemoteFile, RemoteStream, Slice, expect, look

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


T = TypeVar("T")
NEXT = 32
"""Objects that are fetched before they are asked for; fewer than may wait."""


class FileState(NamedTuple):
    """What tells one content of a file from another."""

    size: int
    mtime_ns: int
    mark: str
    """Of an object its version, of a file its number: a new file of the same name has another."""


class OpenFile(Protocol):
    """A file that is read from where it was opened."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Fill the buffer, or a part of it; 0 at the end."""
        ...

    def read(self, num_bytes: int, /) -> bytes | None:
        """Some bytes, so many at most; none at the end."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class LocalFile(FileIO):
    """A file of this machine."""

    def state(self) -> FileState:
        """As it is now."""
        return _state(os.fstat(self.fileno()))

    def pread(self, num_bytes: int, at: int) -> bytes:
        """Bytes from `at` on, fewer where the file ends before."""
        return os.pread(self.fileno(), num_bytes, at)


def open_stream(
    path: str, version: str = "", *, start: int = 0, stop: int | None = None
) -> LocalFile | RemoteStream:
    """Open a file to be read from `start` on, up to `stop` or to its end.

    Args:
        version: of an object, the one that is meant.
    """
    if is_remote(path):
        return RemoteStream(path, version, start=start, stop=stop)
    file = LocalFile(path)
    file.seek(start)
    return file


def with_next(things: Iterable[T], slice_of: Callable[[T], Slice | None]) -> Iterator[T]:
    """The things, one by one, the small objects behind the next ones fetched meanwhile.

    Args:
        slice_of: what of a store a thing is read from; None where that is none, or not known.
    """
    waiting: deque[T] = deque()
    for thing in things:
        waiting.append(thing)
        asked = slice_of(thing)
        if asked is not None:
            expect([asked])
        if asked is None or len(waiting) > NEXT:
            yield waiting.popleft()
    yield from waiting


def open_ranges(path: str, version: str = "") -> Any:
    """What pyarrow takes to read here and there: a path of this machine as it is, or a file object."""
    return RemoteFile(path, version) if is_remote(path) else path


def state_of(path: str, version: str = "") -> FileState:
    """A file as it is now. An object whose version is known is that, or reading it fails."""
    if not is_remote(path):
        return _state(Path(path).stat())
    if version:
        return FileState(RemoteFile(path, version).size(), 0, version)
    found = look(path)
    return FileState(found.size, found.modified_ns, found.version)


def read_head(path: str, num_bytes: int) -> bytes:
    """The first bytes of a file."""
    if is_remote(path):
        return RemoteFile(path).pread(num_bytes, 0)
    with Path(path).open("rb") as file:
        return file.read(num_bytes)


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_size, found.st_mtime_ns, str(found.st_ino))
