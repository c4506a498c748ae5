"""A file of text -> its record and its Shards: unpack, hash, find records, cut, spool; in one pass.

Promises: the shards of a file lie end to end from the first byte of its text (behind a BOM) to the last;
every file has one at least; each ends behind a record or with the text; the same bytes give the same shards.
Knows nothing of: rows, what a record is (see cutter.py), the job.
Memory: some blocks (4 MiB) and a record a shard. Time: plain lines over 1 GB/s, others as they unpack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from rowmill import rundir
from rowmill.errors import BadSource
from rowmill.read.arrays import SHAPE_BYTES, Shape, shape_of, to_lines
from rowmill.read.cutter import Cutter, LineCutter
from rowmill.read.formats import problem_within
from rowmill.read.listing import Found
from rowmill.read.partitions import own_names
from rowmill.read.spool import Spool, new_spool
from rowmill.read.unpack import (
    HEAD_BYTES,
    STDIN,
    Container,
    Stored,
    Text,
    container_words,
    open_text,
)
from rowmill.read_config import ReadConfig
from rowmill.rows import Shard

BLOCK_BYTES = 4 << 20
FIRST_ROW_BYTES = 1 << 20
"""A longer one is not looked at for its columns."""

_BOM = b"\xef\xbb\xbf"


class SourceFile(msgspec.Struct, frozen=True):
    """One input file as it was when it was counted; stored with the run."""

    path: str
    """`-` is standard input, which is read once and never again."""
    name: str
    size: int
    mtime_ns: int
    digest: str
    """xxh3_128 of its bytes as stored, in hex; of an object in a store, `etag` and what the store calls this version."""
    num_lines: int
    container: Container = ""
    spool: str = ""
    """Name of its spool in the folder of spools; empty where it is read in place."""
    shard_bytes: int = 0
    """How a spooled file was cut, to cut it so again where its spool is lost."""


class Scanned(NamedTuple):
    """A file that was read to its end."""

    file: SourceFile
    shards: list[Shard]
    own_columns: Sequence[str] = ()
    """Columns of its folders that the first of its rows has itself, where these are lines."""


class Place(NamedTuple):
    """Where a file stands among the others, and where its text may go."""

    number: int = 0
    """Of the file, from 0: its spool is named by it."""
    first_shard: int = 0
    """Index of its first shard."""
    spool: Path | None = None
    """Folder of spools; None where nothing may be written."""


class _Look(NamedTuple):
    """What the first bytes of a text tell."""

    shape: Shape
    begin: int
    """Behind a byte order mark."""
    spooled_why: str
    """Why it cannot be read in place, as the end of a sentence; empty where it can."""


def scan_text(
    file: Found,
    *,
    shard_bytes: int,
    place: Place = Place(),  # noqa: B008 - a tuple does not change
    read: ReadConfig | None = None,
) -> Scanned:
    """Read a file of text to its end, find its records, cut it into shards, and spool it where it must be.

    Args:
        shard_bytes: size of a shard, about, in bytes of text. It ends with the first record that
            ends in the block of text in which the size is reached.
        read: how files are understood.

    Raises:
        BadSource: it cannot be read, is damaged or cut, changed meanwhile, or is no text.
        StorageError: its spool cannot be written.
    """
    container = None if file.path == STDIN else file.container
    with open_text(file.path, container, version=file.version) as text:
        look = _look(file, text)
        spool = rundir.spool(place.number) if look.spooled_why else ""
        path = str(_folder(place, file, look) / spool) if spool else file.path
        opening = _open_records(file, text, look, read or ReadConfig())
        none_yet = msgspec.structs.replace(
            opening.none_yet,
            index=place.first_shard,
            path=path,
            start=0 if spool else opening.none_yet.start,
            version="" if spool else file.version,
        )
        with _new_spool(path) if spool else nullcontext() as keep:
            cutting = _Cutting(none_yet, opening.cutter, shard_bytes, keep)
            for block in _blocks(text, look, file.path, shard_bytes):
                cutting.take(block)
            cutting.finish()
            # before the spool gets its name: a file that changed meanwhile leaves none
            size = _size(file, text.stored)
        scanned = SourceFile(
            path=file.path,
            name=file.name,
            size=size,
            mtime_ns=file.mtime_ns,
            digest=_digest_by_version(file) or text.stored.digest(),
            num_lines=cutting.num_records,
            container=text.container,
            spool=spool,
            shard_bytes=shard_bytes if spool else 0,
        )
    return Scanned(scanned, cutting.shards, cutting.own_columns)


class _Opening(NamedTuple):
    """What stands before the first record, taken off, and what a record is."""

    none_yet: Shard
    """As the first shard, before it has lines."""
    cutter: Cutter


def _open_records(file: Found, text: Text, look: _Look, read: ReadConfig) -> _Opening:
    none_yet = Shard(
        index=0,
        path=file.path,
        name=file.name,
        start=look.begin,
        stop=look.begin,
        first_line=1,
        num_lines=0,
        partitions=file.partitions,
    )
    if file.format not in ("csv", "tsv"):
        return _Opening(none_yet, LineCutter())
    from rowmill.read.csv import HEADER_BYTES, RecordCutter, read_layout
    from rowmill.read.csv_cut import record_ends

    head = text.peek(HEADER_BYTES)
    name = file.name if file.format == "csv" else f"{file.name}.tsv"
    layout, begin = read_layout(head, is_all=len(head) < HEADER_BYTES, read=read, name=name)
    text.skip(begin)
    # Records, not line ends: a field of the header may have some, and those of blank ones before it may be `\r`.
    num_before = len(record_ends(head[:begin], layout)) if begin else 0
    none_yet = msgspec.structs.replace(
        none_yet,
        start=look.begin + begin,
        format="csv",
        csv=layout,
        first_line=1 + num_before,
    )
    return _Opening(none_yet, RecordCutter(layout))


def digest_of(file: Found) -> str:
    """xxh3_128 of the bytes of a file as stored, in hex; of an object, its version where the store gives one.

    Raises: BadSource where it cannot be read, or changed while it was.
    """
    if file.version:
        return _digest_by_version(file)
    with open_text(file.path, "") as stored:
        buffer = np.empty(BLOCK_BYTES, np.uint8).data
        while stored.readinto(buffer):
            pass
        _size(file, stored.stored)
        return stored.stored.digest()


def _digest_by_version(file: Found) -> str:
    return f"etag {file.version}" if file.version else ""


def _look(file: Found, text: Text) -> _Look:
    is_stdin = file.path == STDIN
    where = f"unpacked ({container_words(text.container)}), it " if text.container else ""
    why = "is standard input" if is_stdin else ""
    if text.container:
        why = f"is compressed with {container_words(text.container)}"
    problem = problem_within(text.peek(HEAD_BYTES)) if why else ""
    if problem:
        raise BadSource(reason=f"`{file.path}`: {where}{problem}")
    begin = 0
    if text.peek(len(_BOM)) == _BOM:
        begin = len(_BOM)
        text.skip(begin)
    shape: Shape = "lines"
    if file.format == "json":
        shape = shape_of(text.peek(SHAPE_BYTES))
    if shape != "lines":
        why = why or "holds JSON over many lines"
    return _Look(shape, begin, why)


def _folder(place: Place, file: Found, look: _Look) -> Path:
    if place.spool is None:
        reason = (
            f"`{file.path}`: {look.spooled_why}, and there is no folder to unpack it into;"
            " write it as plain JSON Lines"
        )
        raise BadSource(reason=reason)
    return place.spool


def _new_spool(path: str) -> AbstractContextManager[Spool]:
    return new_spool(Path(path).parent, Path(path).name)


def _blocks(text: Text, look: _Look, path: str, shard_bytes: int) -> Iterator[memoryview]:
    """Blocks of records; each is another once the next is asked for."""
    stored = _read_blocks(text, max(1, min(BLOCK_BYTES, shard_bytes)))
    if look.shape == "lines":
        return stored
    lines = to_lines(stored, shape=look.shape, path=path, offset=look.begin)
    return map(memoryview, lines)


def _read_blocks(text: Text, block_bytes: int) -> Iterator[memoryview]:
    # Unlike a bytearray it is not filled with zeros, which would cost small files a millisecond.
    buffer = np.empty(block_bytes, np.uint8).data
    while num_bytes := text.readinto(buffer):
        yield buffer[:num_bytes]


def _size(file: Found, stored: Stored) -> int:
    """Bytes of a file that was read to its end."""
    if file.path == STDIN:
        return stored.num_bytes
    state = stored.state()
    now = (state.size, state.mtime_ns) if state else (stored.num_bytes, file.mtime_ns)
    if (*now, stored.num_bytes) != (file.size, file.mtime_ns, file.size):
        reason = f"`{file.path}`: changed while it was read; wait until it is complete"
        raise BadSource(reason=reason)
    return file.size


class _Cutting:
    """Text on its way into shards, and into a spool where there is one."""

    def __init__(
        self, none_yet: Shard, cutter: Cutter, shard_bytes: int, keep: Spool | None
    ) -> None:
        self.shards: list[Shard] = []
        self.num_records = 0
        """In the shards that are cut."""
        self.own_columns: list[str] = []
        self._none_yet = none_yet
        """Before the first shard."""
        self._cutter = cutter
        self._shard_bytes = shard_bytes
        self._keep = keep
        self._start = 0
        """Of the open shard; like the next two, counted in what the cutter was fed."""
        self._stop = 0

    def take(self, block: memoryview) -> None:
        """The next text."""
        begin = self._stop
        if not begin and self._none_yet.partitions and self._none_yet.format == "jsonl":
            names = own_names(bytes(block[:FIRST_ROW_BYTES]).lstrip().partition(b"\n")[0])
            self.own_columns = [name for name, _ in self._none_yet.partitions if name in names]
        self._stop += len(block)
        end, num_records = self._cutter.feed(block)
        # A record that began in an earlier block is in the open frame already, so the cut is behind it.
        if self._stop - self._start < self._shard_bytes or end <= begin:
            self._put(block)
            return
        self._put(block[: end - begin])
        self._cut(end, num_records)
        self._put(block[end - begin :])

    def finish(self) -> None:
        """The text has ended."""
        _, num_records = self._cutter.finish()
        if self._stop > self._start or not self.shards:
            self._cut(self._stop, num_records)

    def _put(self, block: memoryview) -> None:
        if self._keep:
            self._keep.write(block)

    def _cut(self, stop: int, num_records: int) -> None:
        first = self._none_yet
        self.shards.append(
            msgspec.structs.replace(
                first,
                index=first.index + len(self.shards),
                start=first.start + self._start,
                stop=first.start + stop,
                first_line=first.first_line + self.num_records,
                num_lines=num_records - self.num_records,
                frame=self._keep.end_frame() if self._keep else None,
            )
        )
        self._start = stop
        self.num_records = num_records
