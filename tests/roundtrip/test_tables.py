"""Any Arrow table in, the same columns out: types, nullability, metadata and bits, or as docs/rules.md says."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rowmill.errors import StorageError
from rowmill.read.view import ColumnsView
from rowmill.shown.values import inner_types, values
from rowmill.write.kinds import is_marked
from tests.roundtrip.whole import (
    RESULTS,
    TABLES,
    Answered,
    lay,
    lines_of,
    records_of,
    table_of,
)
from tests.strategies import arrow_tables, bits

Draws = Callable[[Callable[..., None]], Callable[..., None]]
t = pa.types
MILLIS = re.compile(r"^(.*\d\d:\d\d:\d\d)\.000(Z?)$")
MIDNIGHT = re.compile(r"^([+-]?\d{4,}-\d\d-\d\d)T00:00:00$")
"""Parquet has no seconds and no days in milliseconds: its times have three digits more."""


def few(examples: int) -> settings:
    return settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None
    )


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    return test(kind) or any(holds(inner, test) for inner in inner_types(kind))


def is_view(kind: pa.DataType) -> bool:
    return t.is_string_view(kind) or t.is_binary_view(kind)


def is_converted(kind: pa.DataType, target: str) -> bool:
    """Whether docs/rules.md names a type, or one inside of it, as one that the format holds as another."""

    def odd(one: pa.DataType) -> bool:
        always = (
            t.is_run_end_encoded(one)
            or t.is_union(one)
            or t.is_interval(one)
            or (t.is_struct(one) and not one.num_fields)
            or t.is_list_view(one)
            or t.is_large_list_view(one)
            or (t.is_nested(one) and any(map(is_view, inner_types(one))))
        )
        if target == "arrow":
            return bool(always or t.is_dictionary(one))
        no_text = t.is_dictionary(one) and not t.is_string(one.value_type)
        coarse = one in (pa.date64(), pa.time32("s")) or (
            t.is_timestamp(one) and one.unit == "s"
        )
        tens = t.is_decimal(one) and one.scale < 0
        return bool(always or no_text or coarse or tens)

    return holds(kind, odd)


def shown(column: Any, *, is_json: bool = False) -> list[Any]:
    """What the values say, whatever their types: times with all the digits that matter."""
    if is_json:
        return [None if v is None else _same(json.loads(v)) for v in column.to_pylist()]
    return [_same(value) for value in values(_whole(column))]


def _same(value: Any) -> Any:
    if isinstance(value, list):
        return [_same(one) for one in value]
    if isinstance(value, dict):
        return {name: _same(one) for name, one in value.items()}
    if isinstance(value, str):
        return MIDNIGHT.sub(r"\1", MILLIS.sub(r"\1\2", value))
    return value


def _whole(column: Any) -> Any:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def check_table(batch: pa.RecordBatch, table: pa.Table, kind: str, target: str) -> None:
    assert table.schema.names == batch.schema.names
    assert (table.schema.metadata or {}) == (batch.schema.metadata or {})
    for field, column in zip(batch.schema, batch.columns, strict=True):
        got, found = table.schema.field(field.name), _whole(table[field.name])
        assert got.nullable == field.nullable
        if is_converted(field.type, target):
            notes = {k: v for k, v in (got.metadata or {}).items() if k != b"rowmill.json"}
            assert notes == (field.metadata or {})
            assert shown(found, is_json=is_marked(got)) == shown(column)
        else:
            assert got.type == field.type
            assert (got.metadata or {}) == (field.metadata or {})
            # Containers differ in what they name and note inside of lists and maps.
            assert not kind.endswith(target) or got.equals(field, check_metadata=True)
            assert bits(found) == bits(column)


def check_lines(batch: pa.RecordBatch, lines: list[bytes]) -> None:
    for source, line in zip(ColumnsView(batch).lines(), lines, strict=True):
        assert line.startswith(source[:-1] + (b"," if batch.num_columns else b""))
        json.loads(line)


def check_records(batch: pa.RecordBatch, records: list[dict[str, str | None]]) -> None:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        texts = [record[name] for record in records]
        for value, text in zip(values(column), texts, strict=True):
            if value is None or text is None:
                assert value is text
            elif isinstance(value, str):
                assert text == value
            elif isinstance(value, bool | int | float):
                assert json.loads(text) == value
            else:
                assert json.loads(text) is not None


def held(batch: pa.RecordBatch, run: Answered, target: str) -> list[bytes] | None:
    """The parts; None where a value has no place in the type, as seconds beyond what milliseconds count."""
    if target != "parquet" or not any(has_seconds(kind) for kind in batch.schema.types):
        return run.publish(target, part_bytes=2000)
    with contextlib.suppress(StorageError):
        return run.publish(target, part_bytes=2000)
    assert any(abs(count) * 1000 >= 2**63 for count in seconds_of(batch))
    return None


def has_seconds(kind: pa.DataType) -> bool:
    return holds(kind, lambda one: t.is_timestamp(one) and one.unit == "s")


def seconds_of(batch: pa.RecordBatch) -> list[int]:
    """All whole numbers in columns of seconds, as deep as they lie."""
    found: list[int] = []
    todo: list[Any] = [bits(c) for c in batch.columns if has_seconds(c.type)]
    while todo:
        one = todo.pop()
        found += [one] if isinstance(one, int) else []
        todo += (
            one.values()
            if isinstance(one, dict)
            else one
            if isinstance(one, list | tuple)
            else []
        )
    return found


def check_every_result(
    folder_of: pytest.TempPathFactory, batch: pa.RecordBatch, kind: str, *targets: str
) -> None:
    # Of a file without rows nothing is known to the run.
    assume(batch.num_rows)
    folder = folder_of.mktemp("run")
    path = lay(folder / "in/f", batch, kind)
    if kind == "parquet":
        # What Parquet keeps of a table is what readers of it see.
        batch = pq.read_table(path).combine_chunks().to_batches()[0]
    run = Answered(folder, [path])
    for target in targets or ("parquet", "arrow", "jsonl.zst", "csv.gz"):
        parts = held(batch, run, target)
        if parts is None:
            continue
        if target in TABLES:
            check_table(batch, table_of(parts, target), kind, target)
        elif target.startswith("jsonl"):
            check_lines(batch, lines_of(parts, target))
        else:
            check_records(batch, records_of(parts, target))


@few(12)
@given(batch=arrow_tables(of_parquet=True))
def test_from_parquet(tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch) -> None:
    check_every_result(tmp_path_factory, batch, "parquet")


@few(12)
@given(batch=arrow_tables())
def test_from_arrow(tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch) -> None:
    check_every_result(tmp_path_factory, batch, "arrow")


@pytest.mark.slow
@few(400)
@given(batch=arrow_tables(of_parquet=True, max_rows=30))
def test_from_many_parquet_files(
    tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch
) -> None:
    check_every_result(tmp_path_factory, batch, "parquet", *RESULTS)


@pytest.mark.slow
@few(400)
@given(batch=arrow_tables(max_rows=30), kind=st.sampled_from(["arrow", "stream.arrow"]))
def test_from_many_arrow_files(
    tmp_path_factory: pytest.TempPathFactory, batch: pa.RecordBatch, kind: str
) -> None:
    check_every_result(tmp_path_factory, batch, kind, *RESULTS)
