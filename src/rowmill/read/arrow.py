"""Arrow IPC file or stream -> Shards of rows -> Tables. A Feather V2 file is an IPC file.

Promises: as parquet.py's; a file is mapped, so a record batch of any size is read in pieces.
Knows nothing of: JSON, the job.
Memory: one piece, and pages of the file that the system takes back when it needs them;
of a compressed file one record batch, unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rowmill.errors import BadSource
from rowmill.read import pieces
from rowmill.read.listing import Found
from rowmill.read.slices import sliced
from rowmill.read.steady import changed_file, steady, unreadable_file
from rowmill.read.table import Table, Wants
from rowmill.rows import Shard

if TYPE_CHECKING:
    import pyarrow as pa

Starts = npt.NDArray[np.int64]
"""First row of each record batch, and the number of rows."""

_FILE_MAGIC = b"ARROW1"
_FEATHER_V1 = b"FEA1"


def schema(path: str) -> pa.Schema:
    """Columns of a file, with everything that is noted of them.

    Raises: BadSource where the file cannot be read.
    """
    try:
        with _opened(path) as reader:
            columns: pa.Schema = reader.schema
            return columns
    except pieces.faults() as error:
        raise _refused(path, error) from error


def scan(file: Found, first_index: int, shard_bytes: int) -> list[Shard]:
    """The record batches of a file as shards, small ones together.

    Raises: BadSource where the file cannot be read, or has columns that rowmill cannot read.
    """
    if not file.size:
        raise BadSource(reason=f"`{file.path}`: is empty (0 bytes), expected an Arrow file")
    try:
        with _opened(file.path) as reader:
            problem = pieces.problem_of(reader.schema, 0)
        if problem:
            raise BadSource(reason=f"`{file.path}`: {problem}")
        starts = _starts(file.path, file.size, file.mtime_ns)
    except pieces.faults() as error:
        raise _refused(file.path, error) from error
    weights = np.diff(starts).tolist()
    return sliced(file, "arrow", starts, weights, first_index, shard_bytes)


def _refused(path: str, error: Exception) -> BadSource:
    reason = (
        f"`{path}`: cannot be read as Arrow IPC ({pieces.told(error)}); copy or write it again"
    )
    return BadSource(reason=reason)


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
        with steady(shard, shard.path):
            state = Path(shard.path).stat()
            starts = _starts(shard.path, state.st_size, state.st_mtime_ns)
            if starts[-1] < shard.stop:
                raise changed_file(shard)
            names = schema(shard.path).names
            columns = pieces.columns_of(shard, names, wants)
            places = [names.index(name) for name in columns.names]
            found = (
                _batches(shard, starts, places, begin, end)
                if places
                else pieces.empty_batches(end)
            )
            yield from pieces.tables_of(shard, found, begin, end, columns.added)
    except BadSource as error:
        raise unreadable_file(shard, str(error)) from error
    except pieces.faults() as error:
        raise unreadable_file(shard, pieces.told(error)) from error


def _batches(
    shard: Shard, starts: Starts, places: list[int], begin: int, end: int
) -> pieces.Batches:
    """Batches that hold the rows `begin` to `end`, each with the ordinal of its first row."""
    due, last = shard.start + begin, shard.start + end
    group = int(np.searchsorted(starts, due, "right")) - 1
    upto = int(np.searchsorted(starts, last))
    with _opened(shard.path, places) as reader:
        for at, batch in enumerate(_read(reader, group, upto), group):
            yield int(starts[at]) - shard.start, batch


def _read(reader: Any, first: int, stop: int | None) -> Iterator[pa.RecordBatch]:
    """Batches `first` to `stop`, None for all; those of a stream can only be passed over."""
    if hasattr(reader, "get_batch"):
        upto = reader.num_record_batches if stop is None else stop
        yield from map(reader.get_batch, range(first, upto))
    else:
        yield from islice(reader, first, stop)


@contextmanager
def _opened(path: str, places: list[int] | None = None) -> Iterator[Any]:
    """A reader of the columns at these places; of a file or of a stream, as its first bytes say."""
    import pyarrow as pa
    from pyarrow import ipc

    options = ipc.IpcReadOptions(included_fields=places)
    with pa.memory_map(path) as mapped:
        head = mapped.read(len(_FILE_MAGIC))
        mapped.seek(0)
        if head.startswith(_FEATHER_V1):
            why = "Feather V1, no longer written since 2020"
            raise pa.ArrowInvalid(why)
        opened = ipc.open_file if head == _FILE_MAGIC else ipc.open_stream
        with opened(mapped, options=options) as reader:
            yield reader


@lru_cache(maxsize=2)
def _starts(path: str, size: int, mtime_ns: int) -> Starts:
    """Found out once for all shards of a file; of its columns, the first alone is looked at."""
    del size, mtime_ns  # what is kept is of the file as it was then
    with _opened(path, [0]) as reader:
        lengths = [batch.num_rows for batch in _read(reader, 0, None)]
    return np.cumsum([0, *lengths], dtype=np.int64)
