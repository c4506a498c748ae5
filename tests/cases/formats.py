"""JSON Lines -> the same rows as a file of another format; and a file of results of any format -> records.

Promises: rows keep their order and every value that the format has a type for; nulls stand in for keys that a row lacks
where columns are shared by all rows; a value that no column type holds is told, not bent.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from tests.cases.compare import Record, read_records

Write = Callable[[list[bytes], Path], None]


def _gzip(lines: Sequence[bytes], file: Path) -> None:
    """Two members, the second one begins inside a line."""
    text = b"\n".join(lines) + b"\n"
    half = len(text) // 2
    file.write_bytes(gzip.compress(text[:half], 1) + gzip.compress(text[half:], 1))


def _array(lines: Sequence[bytes], file: Path) -> None:
    file.write_bytes(b"[\n  " + b",\n  ".join(lines) + b"\n]\n")


def _csv(lines: Sequence[bytes], file: Path) -> None:
    table = as_table(lines)
    for row in table.to_pylist():
        assert all(type(value) is str for value in row.values()), f"no row of texts: {row}"
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, table.column_names)
        writer.writeheader()
        writer.writerows(table.to_pylist())


def _parquet(lines: Sequence[bytes], file: Path) -> None:
    pq.write_table(as_table(lines), file, row_group_size=max(1, len(lines) // 3))


def _arrow(lines: Sequence[bytes], file: Path) -> None:
    table = as_table(lines)
    with ipc.new_file(str(file), table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(lines) // 2))


_WRITERS: dict[str, tuple[str, Write]] = {
    "gzip": (".jsonl.gz", _gzip),
    "array": (".json", _array),
    "csv": (".csv", _csv),
    "parquet": (".parquet", _parquet),
    "arrow": (".arrow", _arrow),
}
TABLES = ("parquet", "arrow")
OF_LINES = ("gzip", "array")
"""Each row stays the JSON text it was, so bad rows may be among them."""
FIRST_LINE = {"csv": 2}
"""Number of the first row, where that is not 1."""


def as_table(lines: Sequence[bytes]) -> pa.Table:
    """Rows as columns, in the order in which the columns come."""
    rows: list[Record] = [json.loads(line) for line in lines]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def converted(source: Path, folder: Path, format_: str) -> Path:
    """The rows of a JSON Lines file as a file of another format, with the same stem."""
    suffix, write = _WRITERS[format_]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}{suffix}"
    write([line.strip() for line in source.read_bytes().splitlines() if line.strip()], target)
    return target


def convert_rows(rows: Sequence[Record], folder: Path, format_: str) -> Path:
    """Rows as a file `input` of a format."""
    _, write = _WRITERS[format_]
    target = folder / f"input{suffix_of(format_)}"
    write([json.dumps(row, ensure_ascii=False).encode() for row in rows], target)
    return target


def suffix_of(format_: str) -> str:
    """What files of a format end in."""
    return _WRITERS[format_][0]


def moved(expected: Sequence[Record], file: Path, format_: str) -> list[Record]:
    """What is expected of rows in `input.jsonl`, for the same rows in another file."""
    told = []
    for record in expected:
        name, _, line = str(record["id"]).rpartition(":")
        is_place = name.endswith(".jsonl")
        told.append({**record, "id": place(file, format_, int(line))} if is_place else record)
    return told


def place(file: Path, format_: str, row: int) -> str:
    """`FILE:LINE` of a row, counted from 1, as results name it."""
    return f"{file.name}:{row - 1 + FIRST_LINE.get(format_, 1)}"


def records_of(file: Path) -> list[Record]:
    """All records of a file of results, read strictly; columns of JSON text as the values they are."""
    if file.suffix == ".jsonl":
        return read_records(file)
    readers: dict[str, Callable[[Path], pa.Table]] = {
        ".parquet": pq.read_table,
        ".arrow": lambda path: ipc.open_file(str(path)).read_all(),
    }
    table = readers[file.suffix](file)
    table.validate(full=True)
    columns = [_values(table, name) for name in table.column_names]
    return [
        dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)
    ]


def _values(table: pa.Table, name: str) -> list[Any]:
    values = table[name].to_pylist()
    if (table.schema.field(name).metadata or {}).get(b"rowmill.json") != b"1":
        return values
    return [None if value is None else json.loads(value) for value in values]
