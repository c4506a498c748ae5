"""Source -> the carried columns of a run, typed: one schema for all files and all parts.

Promises: the same source gives the same columns, in however many processes it is looked at.
Knows nothing of: outcomes.
Memory: one window and a record a column.
Source: measured, rows of 300 bytes in 6 columns: 3 us a row and core.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from rowmill.errors import StorageError, Unreadable
from rowmill.join.apart import INLINE_BYTES, answer, cores, run_apart, uncollected
from rowmill.join.part import Columns, packed_schema
from rowmill.read import read_rows, schema_of
from rowmill.rows import Row, Shard
from rowmill.validate.lines import split_columns
from rowmill.write.form import Form
from rowmill.write.json_columns import MOST_COLUMNS, TooManyColumns, columns_of, split_lines
from rowmill.write.kinds import SeenColumns
from rowmill.write.unify import storable_schema, unify

if TYPE_CHECKING:
    import pyarrow as pa

Limits = Sequence[tuple[Shard, int]]
"""Shards, with one past the last ordinal that belongs to the run."""


class Stretch(msgspec.Struct, frozen=True):
    """Shards of lines to be looked at by one process."""

    shards: list[Shard]
    limit: list[int]
    prefix: str


def carried_columns(
    limits: Limits, form: Form, prefix: str, *, answers: str = "", dimensions: int = 0
) -> Columns:
    """The columns that all rows of a run are carried in, as files of the form keep them.

    Args:
        answers: JSON Schema that the job holds its answers to; empty for none.
        dimensions: numbers in each vector; 0 where there is none.
    Raises: StorageError where the source cannot be read, or has more columns than a table can have.
    """
    lines = [(shard, limit) for shard, limit in limits if shard.format == "jsonl"]
    # CSV knows no types: where nothing else comes, values keep their text.
    as_text = form.format == "csv" and len(lines) == len(limits)
    json_schema = _json_schema(lines, prefix, as_text=as_text)
    schemas: dict[str, pa.Schema] = {}
    for shard, _ in limits:
        key = "" if shard.format == "jsonl" else shard.path
        if key in schemas:
            continue
        found = json_schema if not key else schema_of(shard)
        schemas[key] = _without_clashes(found, prefix)
    schema, notes = unify(list(schemas.values()))
    if form.format != "csv":
        schema, more = storable_schema(schema, form.format)
        notes = [*notes, *more]
    packed = packed_schema(schema), packed_schema(json_schema)
    return Columns(*packed, answers, dimensions, notes)


def look(stretch: Stretch) -> SeenColumns:
    """What the lines of some shards hold."""
    seen = SeenColumns()
    for shard, limit in zip(stretch.shards, stretch.limit, strict=True):
        for rows in read_rows(shard, stop=limit):
            lines = [row.line for row in rows if isinstance(row, Row)]
            try:
                found = _readable(lines, stretch.prefix)
                seen.add(columns_of(found), rows[0].key)
            except TooManyColumns:
                raise _too_many(shard) from None
        if len(seen.seen) > MOST_COLUMNS:
            raise _too_many(shard)
    return seen


def _readable(
    lines: list[bytes], prefix: str
) -> list[dict[str, bytes] | dict[str, msgspec.Raw]]:
    """The columns of lines that are objects, those left out that are named as ours are."""
    try:
        rows = split_lines(lines, split_columns)
    except Unreadable:
        rows = []
        for line in lines:
            try:
                rows += split_lines([line], split_columns)
            except Unreadable:
                continue
    if not any(name.startswith(prefix) for row in rows for name in row):
        return rows
    return [
        {name: raw for name, raw in row.items() if not name.startswith(prefix)} for row in rows
    ]


def _json_schema(limits: Limits, prefix: str, *, as_text: bool) -> pa.Schema:
    import pyarrow as pa

    stretches = _stretches(limits, prefix)
    if len(stretches) > 1:
        requests = [msgspec.json.encode(stretch) for stretch in stretches]
        replies = run_apart("rowmill.join.columns", requests, where="results")
        found = [msgspec.json.decode(reply, type=SeenColumns) for reply in replies]
    else:
        with uncollected():
            found = [look(stretch) for stretch in stretches]
    seen = SeenColumns()
    for one in found:
        seen.merge(one)
    if len(seen.seen) > MOST_COLUMNS:
        raise _too_many(limits[0][0])
    return pa.schema(list(seen.fields(as_text=as_text)))


def _stretches(limits: Limits, prefix: str) -> list[Stretch]:
    size = sum(shard.weight for shard, _ in limits)
    number = cores() if size >= INLINE_BYTES else 1
    parts = [limits[at::number] for at in range(number)]
    return [
        Stretch([shard for shard, _ in part], [limit for _, limit in part], prefix)
        for part in parts
        if part
    ]


def _without_clashes(schema: pa.Schema, prefix: str) -> pa.Schema:
    """Columns that are named as ours make their rows bad, and are not carried."""
    import pyarrow as pa

    if not any(name.startswith(prefix) for name in schema.names):
        return schema
    kept = [field for field in schema if not field.name.startswith(prefix)]
    return pa.schema(kept, metadata=schema.metadata)


def _too_many(shard: Shard) -> StorageError:
    reason = (
        f"its lines have over {MOST_COLUMNS:,} distinct keys, more than a table has columns;"
        " set `output.format` to `jsonl`"
    )
    return StorageError(path=shard.path, reason=reason)


def _look_main(request: bytes) -> bytes:
    return msgspec.json.encode(look(msgspec.json.decode(request, type=Stretch)))


if __name__ == "__main__":
    sys.exit(answer(_look_main))
