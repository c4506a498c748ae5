"""A table -> files of a kind -> a run with made-up answers -> results of a kind, read back by readers of others."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
from backports import zstd

from rowmill.journal import TaskLog, read_commits
from rowmill.outcomes import pack
from rowmill.publish import publish
from rowmill.read import BadLine, open_source, read_rows
from rowmill.read.view import ColumnsView
from rowmill.record import Places, cut
from rowmill.rows import AnyRow, Outcome
from rowmill.storage import LocalStorage
from rowmill.write.form import Form

PREFIX = "p_"
INPUTS = ("parquet", "arrow", "stream.arrow", "csv", "jsonl", "jsonl.gz")
TABLES = INPUTS[:3]
RESULTS = {
    "parquet": Form("parquet", "zstd"),
    "arrow": Form("arrow", "none"),
    "csv": Form("csv", "none"),
    "csv.gz": Form("csv", "gzip"),
    "jsonl": Form("jsonl", "none"),
    "jsonl.zst": Form("jsonl", "zstd"),
}
Rows = list[dict[str, Any]]


def lay(path: Path, batch: pa.RecordBatch, kind: str) -> Path:
    """The rows of a batch as a file; text files hold their JSON view."""
    path = path.with_name(f"{path.name}.{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        pq.write_table(pa.Table.from_batches([batch]), path, row_group_size=5)
    elif kind in TABLES:
        open_file = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
        with open_file(str(path), batch.schema) as writer:
            writer.write_batch(batch)
    elif kind == "csv":
        path.write_bytes(csv_of(batch.schema.names, texts_of(batch)))
    else:
        content = b"".join(line + b"\n" for line in ColumnsView(batch).lines())
        path.write_bytes(gzip.compress(content) if kind == "jsonl.gz" else content)
    return path


def texts_of(batch: pa.RecordBatch) -> list[list[str]]:
    """The JSON view of each value as a text; strings bare."""
    rows = [json.loads(line) for line in ColumnsView(batch).lines()]
    return [[v if isinstance(v, str) else json.dumps(v) for v in row.values()] for row in rows]


def csv_of(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([names, *rows])
    return out.getvalue().encode()


class Answered:
    """A run over files, all rows answered but those that `is_bad`."""

    def __init__(
        self,
        folder: Path,
        sources: Sequence[Path],
        *,
        is_bad: Callable[[AnyRow | BadLine], bool] = lambda _: False,
    ) -> None:
        self.storage = LocalStorage(str(folder / "out"))
        spool = folder / "out/spool"
        found = open_source([str(path) for path in sources], shard_bytes=300, spool=spool)
        self.cut = cut(found.shards, num_lines=found.num_lines, task_rows=4)
        rows: list[AnyRow | BadLine] = [
            row for shard in found.shards for batch in read_rows(shard) for row in batch
        ]
        places = Places(self.cut)
        self.places = [places.place_of(row.key) for row in rows]
        for task in range(self.cut.num_tasks):
            log = TaskLog(self.storage, task, 1)
            mine = [row for row in rows if places.task_of(row.key) == task]
            log.put(
                pack(
                    [
                        Outcome(row.key, "error", error_kind="unreadable", error="no row")
                        if is_bad(row)
                        else Outcome(row.key, "ok", text=f"answer {row.key}")
                        for row in mine
                    ]
                )
            )
            assert log.commit("w")

    def publish(self, kind: str, *, part_bytes: int = 1 << 28) -> list[bytes]:
        """The content of each part."""
        commits = list(read_commits(self.storage).values())
        form = RESULTS[kind]
        done = publish(
            self.storage, self.cut, commits, prefix=PREFIX, part_bytes=part_bytes, form=form
        )
        return [self.storage.read(part.name) for part in done.parts]


def table_of(parts: list[bytes], kind: str) -> pa.Table:
    """Parts of tables together, with rowmill's own columns taken off."""
    read = pq.read_table if kind == "parquet" else _read_arrow
    tables = [read(pa.BufferReader(part)) for part in parts]
    assert all(table.schema.equals(tables[0].schema, check_metadata=True) for table in tables)
    whole = pa.concat_tables(tables)
    return whole.select([name for name in whole.schema.names if not name.startswith(PREFIX)])


def _read_arrow(source: Any) -> pa.Table:
    return pa.ipc.open_file(source).read_all()


def lines_of(parts: list[bytes], kind: str) -> list[bytes]:
    text = b"".join(zstd.decompress(part) if kind == "jsonl.zst" else part for part in parts)
    return text.splitlines()


def records_of(parts: list[bytes], kind: str) -> list[dict[str, str | None]]:
    """CSV as it is documented: an empty field is null, an empty text is in quotes."""
    records: list[dict[str, str | None]] = []
    for part in parts:
        text = gzip.decompress(part) if kind == "csv.gz" else part
        names = next(csv.reader(io.StringIO(text.decode(), newline="")))
        table = pc_csv.read_csv(
            io.BytesIO(text),
            parse_options=pc_csv.ParseOptions(newlines_in_values=True),
            read_options=pc_csv.ReadOptions(
                # A record may be larger than the library's block.
                block_size=len(text) + 64,
                # The header is read as a record: skipping it fails where a name holds a line's end.
                column_names=[str(at) for at in range(len(names))],
            ),
            convert_options=pc_csv.ConvertOptions(
                column_types={str(at): pa.string() for at in range(len(names))},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
        columns = [column.to_pylist()[1:] for column in table.columns]
        records += [
            {n: v for n, v in zip(names, row, strict=True) if not n.startswith(PREFIX)}
            for row in zip(*columns, strict=True)
        ]
    return records
