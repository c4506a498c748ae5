"""Shard -> Rows, whatever its format: the one place that knows which reader a format has.

Promises: `read_rows`, `read_spans` and `read_tables` give the same ordinals for the same slice.
Knows nothing of: how a format is read; a reader is imported when a shard of its kind is.
Memory: what one reader holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from rowmill.read.badline import BadLine
from rowmill.read.jsonl import read_lines
from rowmill.read.jsonl import read_spans as read_line_spans
from rowmill.read.opened import with_next
from rowmill.read.partitions import line_adder, with_columns
from rowmill.read.table import Table, Wants, rows_of, spans_of
from rowmill.rows import AnyRow, Row, Shard, Wanted
from rowmill.storage.remote import Slice

if TYPE_CHECKING:
    import pyarrow as pa


def in_turn(slices: Iterable[tuple[Shard, int, int]]) -> Iterator[tuple[Shard, int, int]]:
    """Slices of shards as they are read one after the other: small objects are fetched ahead, many at once."""
    return with_next(slices, lambda one: _slice_of(one[0]))


def _slice_of(shard: Shard) -> Slice | None:
    if not shard.version or shard.format in ("parquet", "arrow"):
        return None
    return Slice(shard.path, shard.version, shard.start, shard.stop - shard.start)


def read_rows(
    shard: Shard, *, first: int = 0, stop: int | None = None, wanted: Wanted | None = None
) -> Iterator[list[AnyRow | BadLine]]:
    """Rows `first` to `stop` of a shard, in chunks of a few thousand.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    if shard.format == "jsonl":
        yield from _line_rows(shard, first, stop)
        return
    for table in _tables_of(shard, first, stop, wanted):
        rows = rows_of(shard, table)
        if rows:
            yield rows


def read_spans(
    shard: Shard, *, first: int = 0, stop: int | None = None
) -> Iterator[list[tuple[int, bytes]]]:
    """(ordinal, JSON line) of every row that is not blank, unchecked: what publishing joins answers to.

    Returns: the same ordinals as `read_rows`, bad ones among them; the line of a JSON line that is too long
        is empty, and no other is.
    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    if shard.format != "jsonl":
        for table in read_tables(shard, first=first, stop=stop):
            yield spans_of(table)
        return
    chunks = read_line_spans(shard, first=first, stop=stop)
    if not shard.partitions:
        yield from chunks
        return
    add = line_adder(shard.partitions)
    for spans in chunks:
        yield [(ordinal, add(line)) for ordinal, line in spans]


def read_tables(
    shard: Shard, *, first: int = 0, stop: int | None = None, wants: Wants | None = None
) -> Iterator[Table]:
    """Rows of a shard of tables or records, types as in the file, the folders' columns behind its own.

    Args:
        wants: which columns are of use; None: all.
    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    for table in _reader(shard)(shard, first=first, stop=stop, wants=wants):
        if table.batch.num_rows:
            batch = with_columns(table.batch, shard.partitions, wants)
            yield msgspec.structs.replace(table, batch=batch)


def schema_of(shard: Shard) -> pa.Schema:
    """Columns of a shard of tables or records, the folders' behind its own.

    Raises: StorageError, BadSource where the file cannot be read.
    """
    return with_folders(own_schema(shard), shard)


def with_folders(schema: pa.Schema, shard: Shard) -> pa.Schema:
    """A schema, and behind it the columns that the folders of a shard add."""
    import pyarrow as pa

    for name, _ in shard.partitions:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.string()))
    return schema


def own_schema(shard: Shard) -> pa.Schema:
    """Columns of the file that a shard of tables or records is of."""
    import pyarrow as pa

    if shard.csv is not None:
        return pa.schema([(name, pa.string()) for name in shard.csv.columns])
    if shard.format == "parquet":
        from rowmill.read.parquet import schema as schema_of_parquet

        return schema_of_parquet(shard.path, shard.version)
    from rowmill.read.arrow import schema as schema_of_arrow

    return schema_of_arrow(shard.path, shard.version)


def line_of(shard: Shard, ordinal: int) -> bytes | None:
    """One row as JSON, unchecked; None where the line is blank or there is none.

    Raises: StorageError where the file cannot be read, or is shorter than it was.
    """
    if not 0 <= ordinal < shard.num_lines:
        return None
    spans = chain.from_iterable(read_spans(shard, first=ordinal, stop=ordinal + 1))
    return next((line for _, line in spans), None)


def _line_rows(shard: Shard, first: int, stop: int | None) -> Iterator[list[AnyRow | BadLine]]:
    add = line_adder(shard.partitions) if shard.partitions else None
    for chunk in read_lines(shard, first=first, stop=stop):
        if add is None:
            yield list[AnyRow | BadLine](chunk)
        else:
            yield [Row(row.key, add(row.line)) if type(row) is Row else row for row in chunk]


def _tables_of(
    shard: Shard, first: int, stop: int | None, wanted: Wanted | None
) -> Iterator[Table]:
    """Where a needed column is not there, all are read: what is told then names those there are."""
    tables = read_tables(shard, first=first, stop=stop, wants=wanted)
    head = next(tables, None)
    if head is None:
        return
    if wanted is not None and not wanted.can_do_with(head.batch.schema.names):
        yield from read_tables(shard, first=first, stop=stop)
        return
    yield head
    yield from tables


def _reader(shard: Shard) -> Callable[..., Iterator[Table]]:
    if shard.format == "csv":
        from rowmill.read.csv import tables as csv_tables

        return csv_tables
    if shard.format == "parquet":
        from rowmill.read.parquet import tables as parquet_tables

        return parquet_tables
    from rowmill.read.arrow import tables as arrow_tables

    return arrow_tables
