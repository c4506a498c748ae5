"""Arrow IPC file or stream -> Shards of rows -> Tables. A Feather V2 file is an IPC file.

Promises: as parquet.py's; a file is mapped, so a record batch of any size is read in pieces.
Knows nothing of: JSON, the job.
Memory: one piece, and up to `RELEASE_BYTES` of mapped pages; of a compressed file, and of one in an object
store, one record batch.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import lru_cache
from io import FileIO
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rowmill.errors import BadSource
from rowmill.read import pieces
from rowmill.read.listing import Found
from rowmill.read.opened import state_of
from rowmill.read.slices import sliced
from rowmill.read.steady import changed_file, steady, unreadable_file
from rowmill.read.table import Table, Wants
from rowmill.rows import Shard
from rowmill.storage.addresses import is_remote
from rowmill.storage.remote import RemoteFile

if TYPE_CHECKING:
    import pyarrow as pa

Starts = npt.NDArray[np.int64]
"""First row of each record batch, and the number of rows."""


class _Layout(NamedTuple):
    """What must be known to read a part of a file."""

    starts: Starts
    is_packed: bool
    """Compressed: then only the columns that are wanted are unpacked. Else nothing at all is copied, which
    pyarrow would do to read some columns."""


RELEASE_BYTES = 64 << 20
"""After so much the pages that were looked at are given back; the system would keep them while it has room."""

_FILE_MAGIC = b"ARROW1"
_FEATHER_V1 = b"FEA1"


def schema(path: str, version: str = "") -> pa.Schema:
    """Columns of a file, with everything that is noted of them.

    Raises: BadSource where the file cannot be read.
    """
    try:
        columns: pa.Schema = _opened(path, version).reader().schema
    except pieces.faults() as error:
        raise pieces.refused(path, "Arrow IPC", error) from error
    return columns


def scan(file: Found, first_index: int, shard_bytes: int) -> list[Shard]:
    """The record batches of a file as shards, small ones together.

    Raises: BadSource where the file cannot be read, or has columns that rowmill cannot read.
    """
    if not file.size:
        raise BadSource(
            reason=f"`{file.path}`: is empty (0 bytes), expected an Arrow file; write it again"
        )
    try:
        problem = pieces.problem_of(_opened(file.path, file.version).reader().schema)
        if problem:
            raise BadSource(reason=f"`{file.path}`: {problem}")
        starts = _layout(file.path, file.size, file.mtime_ns, file.version).starts
    except pieces.faults() as error:
        raise pieces.refused(file.path, "Arrow IPC", error) from error
    weights = np.diff(starts).tolist()
    return sliced(file, "arrow", starts, weights, first_index, shard_bytes)


def tables(
    shard: Shard, *, first: int = 0, stop: int | None = None, wants: Wants | None = None
) -> Iterator[Table]:
    """The rows `first` to `stop` of a shard, in batches of about 4 MiB.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    begin, end = pieces.rows_within(shard, first, stop)
    if begin >= end:
        return
    try:
        with steady(shard, lambda: state_of(shard.path, shard.version)) as state:
            layout = _layout(shard.path, state.size, state.mtime_ns, shard.version)
            if layout.starts[-1] < shard.stop:
                raise changed_file(shard)
            opened = _opened(shard.path, shard.version)
            names = opened.reader().schema.names
            columns = pieces.columns_of(shard, names, wants)
            found = pieces.empty_batches(end)
            if columns.names:
                places = [names.index(name) for name in columns.names]
                reader = opened.reader(places if layout.is_packed else None)
                found = _batches(shard, layout.starts, reader, columns.names, begin, end)
            for table in pieces.tables_of(shard, found, begin, end, columns.added):
                yield table
                opened.passed(table.batch.nbytes)
    except pieces.faults() as error:
        raise unreadable_file(shard, pieces.told(error)) from error


def _batches(
    shard: Shard, starts: Starts, reader: Any, names: list[str], begin: int, end: int
) -> pieces.Batches:
    """Batches that hold the rows `begin` to `end`, each with the ordinal of its first row."""
    due, last = shard.start + begin, shard.start + end
    group = int(np.searchsorted(starts, due, "right")) - 1
    upto = int(np.searchsorted(starts, last))
    for at, batch in enumerate(_read(reader, group, upto), group):
        yield int(starts[at]) - shard.start, batch.select(names)


def _read(reader: Any, first: int, stop: int | None) -> Iterator[pa.RecordBatch]:
    """Batches `first` to `stop`, None for all; those of a stream can only be passed over."""
    if hasattr(reader, "get_batch"):
        upto = reader.num_record_batches if stop is None else stop
        yield from map(reader.get_batch, range(first, upto))
    else:
        yield from islice(reader, first, stop)


class _Mapped:
    """A file as memory. It is let go with the last batch that lies in it."""

    def __init__(self, path: str) -> None:
        import pyarrow as pa

        with FileIO(path) as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._memory = pa.py_buffer(self._map)
        self._passed_bytes = 0

    @property
    def addresses(self) -> range:
        """Where it lies."""
        return range(self._memory.address, self._memory.address + self._memory.size)

    def reader(self, places: list[int] | None = None) -> Any:
        """Of a file or of a stream, as the first bytes say; of all columns, or of those at some places."""
        import pyarrow as pa

        head = self._map[: len(_FILE_MAGIC)]
        return _reader(head, pa.BufferReader(self._memory), places)

    def passed(self, num_bytes: int) -> None:
        """Note that so much was read. Who still needs a page that was given back gets it again."""
        self._passed_bytes += num_bytes
        if self._passed_bytes > RELEASE_BYTES:
            self._passed_bytes = 0
            self._map.madvise(mmap.MADV_DONTNEED)


class _Ranged:
    """An object of a store: a record batch is fetched whole when it is read."""

    addresses = range(0)
    """It lies nowhere on this machine: so only what is wanted is taken of it."""

    def __init__(self, path: str, version: str) -> None:
        self._file = RemoteFile(path, version)

    def reader(self, places: list[int] | None = None) -> Any:
        """As `_Mapped.reader`."""
        self._file.seek(0)
        return _reader(self._file.pread(len(_FILE_MAGIC), 0), self._file, places)

    def passed(self, num_bytes: int) -> None:
        """Nothing of it is kept."""


def _opened(path: str, version: str) -> _Mapped | _Ranged:
    return _Ranged(path, version) if is_remote(path) else _Mapped(path)


def _reader(head: bytes, file: Any, places: list[int] | None) -> Any:
    import pyarrow as pa
    from pyarrow import ipc

    if head.startswith(_FEATHER_V1):
        why = "Feather V1, no longer written since 2020"
        raise pa.ArrowInvalid(why)
    opened: Any = ipc.open_file if head == _FILE_MAGIC else ipc.open_stream
    return opened(file, options=ipc.IpcReadOptions(included_fields=places))


@lru_cache(maxsize=2)
def _layout(path: str, size: int, mtime_ns: int, version: str) -> _Layout:
    """Found out once for all shards of a file; of a packed one, one of the smallest columns is unpacked."""
    import pyarrow as pa

    del size, mtime_ns  # what is kept is of the file as it was then
    mapped = _opened(path, version)
    reader = mapped.reader()
    batch = next((found for found in _read(reader, 0, None) if found.num_rows), None)
    is_packed = not _lies_within(batch, mapped.addresses)
    kinds = reader.schema.types
    smallest = min(range(len(kinds)), key=lambda at: not pa.types.is_primitive(kinds[at]))
    reader = mapped.reader([smallest] if is_packed else None)
    lengths = [found.num_rows for found in _read(reader, 0, None)]
    return _Layout(np.cumsum([0, *lengths], dtype=np.int64), is_packed)


def _lies_within(batch: pa.RecordBatch | None, file: range) -> bool:
    """Whether the memory of a batch is that of the mapped file."""
    columns = batch.columns if batch is not None else []
    buffers = [buffer for column in columns for buffer in column.buffers() if buffer]
    return not buffers or any(buffer.size and buffer.address in file for buffer in buffers)
