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


def schema_of(shard: Shard) -> pa.Schema | None:
    """Columns of a shard of a table; None where it has no row to tell."""
    for table in read_tables(shard, first=0, stop=min(1, shard.num_lines)):
        return table.batch.schema
    return None
