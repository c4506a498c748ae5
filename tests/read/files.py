"""Arrow data -> files, as the readers' tests need them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from rowmill.read.listing import Found
from rowmill.read.table import Table
from tests.strategies import bits


def found(path: Path) -> Found:
    """A file as listing finds it."""
    state = path.stat()
    return Found(str(path), path.name, state.st_size, state.st_mtime_ns)


def write_parquet(path: Path, batch: Any, *, group_rows: int = 1 << 20, **options: Any) -> Path:
    """A batch or table in row groups of so many rows."""
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    parquet.write_table(table, path, row_group_size=group_rows, **options)
    return path


def write_arrow(
    path: Path, batch: Any, *, stream: bool, batch_rows: int = 1 << 20, codec: Any = None
) -> Path:
    """A batch cut into batches of so many rows, as a file or as a stream."""
    opened = ipc.new_stream if stream else ipc.new_file
    options = ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
    with pa.OSFile(str(path), "wb") as sink, opened(sink, batch.schema, options=options) as out:
        for at in range(0, batch.num_rows, batch_rows):
            out.write_batch(batch.slice(at, batch_rows))
    return path


def bits_of(tables: list[Table]) -> dict[str, list[Any]]:
    """Values of all tables, by column, floats as bits."""
    names = tables[0].batch.schema.names if tables else []
    return {name: [v for t in tables for v in bits(t.batch.column(name))] for name in names}


def ordinals_of(tables: list[Table]) -> list[int]:
    """Ordinals of all tables."""
    return [ordinal for table in tables for ordinal in table.ordinals.tolist()]


def touch(path: Path) -> None:
    """Another time of change."""
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))
