"""`s3://BUCKET/KEY` -> its bytes, a range at a time, of one version of the object.

Promises: every byte of a file is of the version that was asked for, or of the first one that was seen; a changed
object ends the reading; all failures are OSErrors whose `strerror` says what the store said.
Knows nothing of: what is in the object, rows.
Memory: two blocks (8 MiB) a stream; the ranges read last (32 MiB) of a file that is read here and there.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rowmill.storage.addresses import Address, attempts_of, open_store, parse_address
from rowmill.storage.attempts import GaveUpOnStore, answer_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import GetOptions
    from obstore.store import ObjectStore

T = TypeVar("T")

BLOCK_BYTES = 4 << 20
KEPT_BYTES = 32 << 20
"""Of ranges read last: who reads a table begins it again with longer batches."""
THREADS = 16
"""Requests under way at once, of all files: most are small, and wait for the network."""
SMALL_BYTES = 256 << 10
"""Of slices that are fetched before they are asked for."""
AHEAD = 64
"""Slices that may wait to be asked for: 16 MiB at most."""


class RemoteObject(NamedTuple):
    """An object as the store tells of it."""

    url: str
    size: int
    modified_ns: int
    version: str
    """Its ETag; empty where the store gives none."""


def look(url: str) -> RemoteObject:
    """What the store says of an object. Raises: OSError; FileNotFoundError where there is none."""
    import obstore

    address = parse_address(url)
    meta = _ask(url, lambda store: obstore.head(store, address.key))
    return _object(address.url, meta)


def look_all(urls: Sequence[str]) -> list[RemoteObject | None]:
    """The same of many at once; None for what is not there. Raises: OSError."""
    return list(_pool().map(_look_or_none, urls))


def first_bytes(found: Sequence[tuple[str, str]], num_bytes: int) -> list[bytes | OSError]:
    """The first bytes of objects, given by address and version, many at once."""

    def read(one: tuple[str, str]) -> bytes | OSError:
        try:
            return RemoteFile(*one).pread(num_bytes, 0)
        except OSError as error:
            return error

    return list(_pool().map(read, found))


def list_objects(url: str) -> list[RemoteObject]:
    """All objects below an address, at any depth, in order. Raises: OSError."""
    import obstore

    address = parse_address(url)

    def ask(store: ObjectStore) -> list[RemoteObject]:
        chunks = obstore.list(store, prefix=address.key or None)
        return [
            _object(f"{address.scheme}://{address.bucket}/{meta['path']}", meta)
            for chunk in chunks
            for meta in chunk
        ]

    return sorted(_ask(url, ask))


class Slice(NamedTuple):
    """A part of an object, from `start` on."""

    url: str
    version: str
    start: int
    num_bytes: int


def expect(slices: Sequence[Slice]) -> None:
    """Have small slices that are about to be streamed fetched now, many at once."""
    _ahead().expect(slices)


class RemoteFile(io.RawIOBase):
    """Ranges of an object: each read is a request of its own."""

    def __init__(self, url: str, version: str = "") -> None:
        """Open nothing yet.

        Args:
            version: the one to be read; empty: the one that the first answer is of.
        """
        super().__init__()
        self.url = url
        self._address = parse_address(url)
        self._version = version
        self._size = -1
        self._at = 0
        self._kept: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}
        self._at = offset + (self.size() if whence == io.SEEK_END else begin[whence])
        return self._at

    @property
    def version(self) -> str:
        """What is read, or was first seen."""
        return self._version

    def size(self) -> int:
        """Of the object, in bytes."""
        if self._size < 0:
            found = _sized(self.url, self._version) if self._version else look(self.url)
            self._see(found.version, found.size)
        return self._size

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        content = self._read_or_kept(len(view))
        view[: len(content)] = content
        self._at += len(content)
        return len(content)

    def _read_or_kept(self, num_bytes: int) -> bytes:
        key = self._at, num_bytes
        content = self._kept.get(key)
        if content is None:
            content = self.pread(num_bytes, self._at)
            self._kept[key] = content
            while sum(map(len, self._kept.values())) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return content

    def pread(self, num_bytes: int, at: int) -> bytes:
        """Bytes from `at` on, fewer where the object ends before."""
        stop = min(at + num_bytes, self._size) if self._size >= 0 else at + num_bytes
        return self._get(at, stop) if at < stop else b""

    def _get(self, start: int, stop: int) -> bytes:
        import obstore

        options: GetOptions = {"range": (start, stop)}
        if self._version:
            options["if_match"] = f'"{self._version}"'

        def get(store: ObjectStore) -> tuple[bytes, Any]:
            found = obstore.get(store, self._address.key, options=options)
            return bytes(found.bytes()), found.meta

        try:
            content, meta = _ask(self.url, get)
        except _BehindEnd:
            if self.size() > start:
                raise
            return b""
        self._see(_version_of(meta), meta["size"])
        return content

    def _see(self, version: str, size: int) -> None:
        if self._version and version and version != self._version:
            raise _changed(self.url)
        self._version, self._size = version or self._version, size


class RemoteStream(RemoteFile):
    """An object, or a part of it, from its beginning to its end: the next block is on its way while one is read."""

    def __init__(
        self, url: str, version: str = "", *, start: int = 0, stop: int | None = None
    ) -> None:
        """Open nothing yet.

        Args:
            start: where to begin.
            stop: what lies behind is not asked for; None: the end of the object.
        """
        super().__init__(url, version)
        self._at, self._stop = start, stop
        self._block = b""
        """What was read, and not yet given."""
        self._next: Future[bytes] | None = None
        self._asked = start
        """Where the next block begins."""
        self._at_all = False
        """Whether anything was asked for."""

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._block:
            self._block = self._next_block()
        content = self._block[: len(view)]
        view[: len(content)] = content
        self._block = self._block[len(content) :]
        self._at += len(content)
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        raise io.UnsupportedOperation

    def _next_block(self) -> bytes:
        pending = self._next or self._expected() or self._ask_block()
        self._next = None
        if pending is None:
            return b""
        block = pending.result()
        if block:
            self._next = self._ask_block()
        return block

    def _expected(self) -> Future[bytes] | None:
        """The first block, where it was fetched before."""
        fetched = (
            _ahead().take(self.url, self._version, self._asked) if not self._at_all else None
        )
        self._at_all = True
        if fetched is None:
            return None
        file, pending = fetched
        block = pending.result()
        self._see(file.version, file.size())
        self._asked += len(block)
        return pending

    def _ask_block(self) -> Future[bytes] | None:
        end = self._size if self._stop is None else self._stop
        stop = self._asked + BLOCK_BYTES if end < 0 else min(self._asked + BLOCK_BYTES, end)
        if self._asked >= stop:
            return None
        start, self._asked = self._asked, stop
        return _pool().submit(self._get, start, stop)


class _Ahead:
    """Small slices that were asked for and not taken yet; the oldest are forgotten."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[tuple[str, str, int], tuple[RemoteFile, Future[bytes]]]
        self._waiting = OrderedDict()
        self._lock = threading.Lock()

    def expect(self, slices: Sequence[Slice]) -> None:
        with self._lock:
            for one in slices[:AHEAD]:
                key = (one.url, one.version, one.start)
                if one.num_bytes > SMALL_BYTES or key in self._waiting:
                    continue
                file = RemoteFile(one.url, one.version)
                pending = _pool().submit(file.pread, one.num_bytes, one.start)
                self._waiting[key] = file, pending
            while len(self._waiting) > AHEAD:
                _, (_, pending) = self._waiting.popitem(last=False)
                pending.cancel()

    def take(
        self, url: str, version: str, start: int
    ) -> tuple[RemoteFile, Future[bytes]] | None:
        with self._lock:
            return self._waiting.pop((url, version, start), None)


@functools.lru_cache(maxsize=1)
def _ahead() -> _Ahead:
    return _Ahead()


class _BehindEnd(OSError):
    """A range that begins behind the end of an object."""


def _object(url: str, meta: Any) -> RemoteObject:
    since = meta["last_modified"] - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    modified_ns = since // datetime.timedelta(microseconds=1) * 1000
    return RemoteObject(url, meta["size"], modified_ns, _version_of(meta))


def _version_of(meta: Any) -> str:
    """The ETag without its quotation marks, which Azure leaves out in listings."""
    return (meta.get("e_tag") or "").strip('"')


@functools.lru_cache(maxsize=8192)
def _sized(url: str, version: str) -> RemoteObject:
    """A version of an object is as long as it ever was."""
    found = look(url)
    if found.version != version:
        raise _changed(url)
    return found


def _look_or_none(url: str) -> RemoteObject | None:
    with contextlib.suppress(FileNotFoundError):
        return look(url)
    return None


@functools.lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="rowmill-store")


def _ask(url: str, act: Callable[[ObjectStore], T]) -> T:
    """What a store answers. Raises: OSError."""
    address: Address = parse_address(url)
    store = open_store(address.scheme, address.bucket)
    attempts = attempts_of(address.scheme, address.bucket)
    with _told(url):
        return attempts.call(lambda _: act(store))


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", url) from error
    except PreconditionError as error:
        raise _changed(url) from error
    except GaveUpOnStore as error:
        kind = _BehindEnd if error.answer.status == 416 else OSError
        raise kind(errno.EIO, str(error), url) from error
    except BaseError as error:
        raise OSError(errno.EIO, answer_of(error).words, url) from error


def _changed(url: str) -> OSError:
    return OSError(errno.ESTALE, "it changed meanwhile; put the old object back", url)
