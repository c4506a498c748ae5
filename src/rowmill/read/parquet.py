"""Parquet file -> Shards of rows -> Tables.

Promises: every row of the file belongs to one shard; rows come in their order, types and values as the file
has them; times kept as INT96 (Spark) are exact to the microsecond, and finer ones refuse the file;
a file that cannot be read is an error that names it, never a traceback of the library.
Knows nothing of: JSON, the job.
Memory: a page and a buffer a column, and one batch; the footers of two files. A row group may be any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rowmill.errors import BadSource
from rowmill.read import pieces
from rowmill.read.bombs import refuse_bomb
from rowmill.read.listing import Found
from rowmill.read.opened import FileState, open_ranges, state_of
from rowmill.read.slices import sliced
from rowmill.read.steady import changed_file, steady, unreadable_file
from rowmill.read.table import Table, Wants
from rowmill.rows import Shard
from rowmill.storage.addresses import is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

PROBE_ROWS = 64
"""Rows of the first batch; how large rows are once decoded is not written in the file."""
READ_BYTES = 8 << 20
READ_ROWS = 1 << 16
"""What is decoded at once, by a thread a column; then it is cut into pieces."""
BUFFER_BYTES = 8 << 20
"""Of all columns that are read, together."""
REMOTE_BUFFER_BYTES = 32 << 20
MIN_REMOTE_BUFFER_BYTES = 1 << 18
"""Each buffer is filled by a request, which takes as long for a little as for more."""
_MAX_GROWTHS = 3
_GROWTH_BYTES = 2 * READ_BYTES
"""Longer batches are not worth reading more than this again."""


class _Footer(NamedTuple):
    """What stands at the end of a file."""

    path: str
    version: str
    metadata: pq.FileMetaData
    starts: npt.NDArray[np.int64]
    """First row of each row group, and the number of rows."""


def schema(path: str, version: str = "") -> pa.Schema:
    """Columns of a file, with everything that is noted of them.

    Raises: BadSource where the file cannot be read.
    """
    try:
        with _opened(_footer_of(path, state_of(path, version))) as file:
            return file.schema_arrow
    except pieces.faults() as error:
        raise pieces.refused(path, "Parquet", error) from error


def scan(file: Found, first_index: int, shard_bytes: int) -> list[Shard]:
    """The row groups of a file as shards, small ones together.

    Raises: BadSource where the file cannot be read, or has columns that rowmill cannot read.
    """
    if not file.size:
        raise BadSource(
            reason=f"`{file.path}`: is empty (0 bytes), expected a Parquet file; write it again"
        )
    try:
        footer = _footer(
            file.path, file.size, 0 if file.version else file.mtime_ns, file.version
        )
        with _opened(footer) as opened:
            problem = pieces.problem_of(opened.schema_arrow)
            if not problem and footer.starts[-1]:
                # What no footer tells: codecs and keys that are missing.
                next(opened.iter_batches(batch_size=1), None)
                problem = _finer_times(footer, opened)
    except pieces.faults() as error:
        raise pieces.refused(file.path, "Parquet", error) from error
    if problem:
        raise BadSource(reason=f"`{file.path}`: {problem}")
    groups = range(footer.metadata.num_row_groups)
    weights = [footer.metadata.row_group(at).total_byte_size for at in groups]
    return sliced(file, "parquet", footer.starts, weights, first_index, shard_bytes)


def _finer_times(footer: _Footer, opened: pq.ParquetFile) -> str:
    """Which column has INT96 times that microseconds do not hold; empty for none.

    Nanoseconds hold no year before 1677 or behind 2262: read as such, others become wrong without a word.
    Both readings wrap alike, so they agree exactly where there is nothing below a microsecond.
    """
    with _opened(footer, unit="ns") as fine:
        pairs = zip(opened.schema_arrow, fine.schema_arrow, strict=True)
        names = [ours.name for ours, theirs in pairs if ours.type != theirs.type]
        if not names:
            return ""
        batches = zip(
            opened.iter_batches(batch_size=READ_ROWS, columns=names),
            fine.iter_batches(batch_size=READ_ROWS, columns=names),
            strict=True,
        )
        for ours, theirs in batches:
            for name in names:
                exact = theirs.column(name)
                if not ours.column(name).cast(exact.type, safe=False).equals(exact):
                    return (
                        f"column `{pieces.shown(name)}` holds INT96 times with digits below"
                        " the microsecond, which cannot be read exactly; write it as"
                        " TIMESTAMP, to the nanosecond"
                    )
    return ""


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
            footer = _footer_of(shard.path, state)
            if footer.starts[-1] < shard.stop:
                raise changed_file(shard)
            with _opened(footer) as file:
                names = file.schema_arrow.names
            columns = pieces.columns_of(shard, names, wants)
            found = _batches(shard, footer, columns, begin, end)
            yield from pieces.tables_of(shard, found, begin, end, columns.added)
    except pieces.faults() as error:
        raise unreadable_file(shard, pieces.told(error)) from error


def _batches(
    shard: Shard, footer: _Footer, columns: pieces.Columns, begin: int, end: int
) -> pieces.Batches:
    """Batches that hold the rows `begin` to `end`, each with the ordinal of its first row."""
    if not columns.names:
        return pieces.empty_batches(end)
    return _read(shard, footer, columns, begin, end)


def _read(
    shard: Shard, footer: _Footer, columns: pieces.Columns, begin: int, end: int
) -> pieces.Batches:
    """Read on in batches of another size where rows turn out to be larger or smaller."""
    size = _Size(footer, shard)
    due, last = shard.start + begin, shard.start + end
    with _opened(footer, len(columns.names)) as file:
        while due < last:
            group = int(np.searchsorted(footer.starts, due, "right")) - 1
            groups = range(group, int(np.searchsorted(footer.starts, last)))
            at = int(footer.starts[group])
            for batch in _group_batches(file, groups, columns, size.rows):
                is_new = at + batch.num_rows > due
                if is_new:
                    yield at - shard.start, batch
                at += batch.num_rows
                due = max(due, at)
                if not size.suits(batch, is_new=is_new):
                    break
            else:
                return


def _group_batches(
    file: pq.ParquetFile, groups: range, columns: pieces.Columns, num_rows: int
) -> Iterator[pa.RecordBatch]:
    names = None if columns.is_all else columns.names
    for batch in file.iter_batches(batch_size=num_rows, row_groups=list(groups), columns=names):
        # By names that are paths: `a` means `a.b` as well.
        yield batch if names is None else batch.select(names)


class _Size:
    """How many rows are read at once, so that they are of a bounded size decoded."""

    def __init__(self, footer: _Footer, shard: Shard) -> None:
        group = int(np.searchsorted(footer.starts, shard.start, "right")) - 1
        metadata = footer.metadata.row_group(group)
        encoded = metadata.total_byte_size / max(metadata.num_rows, 1)
        fitting = int(READ_BYTES / max(encoded, 1))
        self.rows = max(1, min(PROBE_ROWS, fitting))
        self._growths_left = _MAX_GROWTHS
        self._passed_bytes = 0

    def suits(self, batch: pa.RecordBatch, *, is_new: bool) -> bool:
        """Whether the next batch may be as long; else `rows` is another number, and reading starts again.

        What was passed is then read again in longer batches, so it must not be much.
        """
        best = pieces.rows_that_fit(batch, READ_BYTES, READ_ROWS)
        self._passed_bytes += batch.get_total_buffer_size()
        if best < self.rows // 4:
            return self._changes_to(best)
        if best < 4 * self.rows or batch.num_rows < self.rows:
            return True
        if not is_new or not self._growths_left or self._passed_bytes > _GROWTH_BYTES:
            return True
        self._growths_left -= 1
        return self._changes_to(best)

    def _changes_to(self, rows: int) -> bool:
        self.rows, self._passed_bytes = rows, 0
        return False


def _opened(footer: _Footer, num_columns: int = 1, *, unit: str = "us") -> pq.ParquetFile:
    """A file of which pages are read, not whole column chunks; `unit` is that of times kept as INT96."""
    import pyarrow.parquet as pq

    source = open_ranges(footer.path, footer.version)
    buffers = (BUFFER_BYTES, 1 << 16)
    if not isinstance(source, str):
        buffers = (REMOTE_BUFFER_BYTES, MIN_REMOTE_BUFFER_BYTES)
    return pq.ParquetFile(
        source,
        metadata=footer.metadata,
        pre_buffer=False,
        buffer_size=max(buffers[0] // num_columns, buffers[1]),
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=unit,
    )


def _footer_of(path: str, state: FileState) -> _Footer:
    if is_remote(path):
        return _footer(path, state.size, 0, state.mark)
    return _footer(path, state.size, state.mtime_ns, "")


@lru_cache(maxsize=2)
def _footer(path: str, size: int, mtime_ns: int, version: str) -> _Footer:
    """Read once for all shards of a file: with many row groups it is large."""
    import pyarrow.parquet as pq

    del mtime_ns  # what is kept is of the file as it was then
    metadata = pq.read_metadata(open_ranges(path, version))
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    refuse_bomb(path, packed=size, unpacked=max((g.total_byte_size for g in groups), default=0))
    lengths: list[Any] = [group.num_rows for group in groups]
    return _Footer(path, version, metadata, np.cumsum([0, *lengths], dtype=np.int64))
