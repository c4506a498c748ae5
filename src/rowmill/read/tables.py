"""Shard of a table -> Tables: the reader of each format, loaded when such a file is there.

Promises: every record of the asked range that is a row comes once, in order, types as in the file.
Knows nothing of: how formats are read.
Memory: one batch.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rowmill.read.table import Table, Wants
from rowmill.rows import Shard

if TYPE_CHECKING:
    import pyarrow as pa


def read_tables(
    shard: Shard, *, first: int = 0, stop: int | None = None, wants: Wants | None = None
) -> Iterator[Table]:
    """Rows `first` to `stop` of a shard of a table.

    Args:
        wants: which columns are of use; None: all.
    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    reader = importlib.import_module(f"rowmill.read.{shard.format}")
    tables: Iterator[Table] = reader.tables(shard, first=first, stop=stop, wants=wants)
    return tables


def schema_of(shard: Shard) -> pa.Schema:
    """Columns of a shard of a table, be it without rows.

    Raises: StorageError, BadSource where the file cannot be read.
    """
    for table in read_tables(shard, first=0, stop=min(1, shard.num_lines)):
        return table.batch.schema
    return _schema_without_rows(shard)


def _schema_without_rows(shard: Shard) -> pa.Schema:
    import pyarrow as pa

    if shard.csv is not None:
        schema = pa.schema([(name, pa.string()) for name in shard.csv.columns])
    else:
        schema = importlib.import_module(f"rowmill.read.{shard.format}").schema(shard.path)
    for name, _ in shard.partitions:
        if name not in schema.names:
            schema = schema.append(pa.field(name, pa.string()))
    return schema
