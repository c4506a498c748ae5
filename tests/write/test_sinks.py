"""Batches -> Parquet, Arrow, CSV: what is read back is what was written."""

from __future__ import annotations

import csv
import io
import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from rowmill.write import sinks
from rowmill.write.form import Compression, FileFormat, Form
from rowmill.write.sinks import open_sink
from rowmill.write.unify import fit, storable_schema
from tests.write.drawn import arrow_batches


def written(form: Form, schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    out = io.BytesIO()
    sink = open_sink(form, schema, lambda piece: (out.write(piece), None)[1])
    for batch in batches:
        sink.add(batch)
    sink.finish()
    return out.getvalue()


def read(form: Form, content: bytes) -> pa.Table:
    if form.format == "parquet":
        return pq.read_table(io.BytesIO(content))
    return pa.ipc.open_file(io.BytesIO(content)).read_all()


def check_same(table: pa.Table, batch: pa.RecordBatch) -> None:
    table.validate(full=True)
    assert table.equals(pa.Table.from_batches([batch]))
    assert table.schema.names == batch.schema.names
    for ours, theirs in zip(table.schema, batch.schema, strict=True):
        assert ours.nullable == theirs.nullable
        mine = {k: v for k, v in (ours.metadata or {}).items() if not k.startswith(b"PARQUET")}
        assert mine == (theirs.metadata or {})
    assert (table.schema.metadata or {}) == (batch.schema.metadata or {})


@given(batch=arrow_batches())
def test_parquet_keeps_types_values_and_metadata(batch: pa.RecordBatch) -> None:
    schema, notes = storable_schema(batch.schema, "parquet")
    form = Form("parquet", "zstd")

    table = read(form, written(form, schema, [fit(batch, schema)] * 2))

    assert notes == []
    check_same(table.slice(0, batch.num_rows), batch)
    check_same(table.slice(batch.num_rows), batch)


@given(batch=arrow_batches())
def test_arrow_keeps_all_but_dictionaries(batch: pa.RecordBatch) -> None:
    schema, _ = storable_schema(batch.schema, "arrow")
    form = Form("arrow", "zstd")

    table = read(form, written(form, schema, [fit(batch, schema)]))

    encoded = [n for n, f in enumerate(batch.schema) if pa.types.is_dictionary(f.type)]
    kept = [n for n in range(batch.num_columns) if n not in encoded]
    check_same(table.select(kept), batch.select(kept))
    for at in encoded:
        plain = pa.chunked_array([batch.column(at).dictionary_decode()])
        assert table.column(at).to_pylist() == plain.to_pylist()


def test_csv_of_maps_that_hold_maps_of_nulls() -> None:
    type_ = pa.map_(pa.string(), pa.map_(pa.string(), pa.null()))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([[("", [("", None), ("0", None)])]], type_)], names=["a"]
    )

    rows = list(csv.reader(io.StringIO(written(Form("csv"), batch.schema, [batch]).decode())))

    assert [json.loads(cell) for cell in rows[1]] == [{"": {"": None, "0": None}}]


@given(batch=arrow_batches())
def test_csv_tells_null_from_empty_and_is_parsed_by_others(batch: pa.RecordBatch) -> None:
    content = written(Form("csv"), batch.schema, [batch]).decode()

    header, *records = list(csv.reader(io.StringIO(content, newline=""), strict=True))
    # A record of one empty field is an empty line, which readers pass over.
    if batch.num_columns > 1:
        assert len(records) == batch.num_rows
    assert header == batch.schema.names


@pytest.mark.parametrize(
    "type_",
    [
        pa.date64(),
        pa.time32("s"),
        pa.timestamp("s"),
        pa.timestamp("s", "UTC"),
        pa.dictionary(pa.int8(), pa.int64()),
        pa.dictionary(pa.int8(), pa.large_string()),
        pa.list_(pa.time32("s")),
        pa.struct([("a", pa.timestamp("s"))]),
        pa.map_(pa.string(), pa.date64()),
        pa.struct([]),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.list_(pa.int8(), 2),
        pa.list_view(pa.string()),
        pa.list_(pa.struct([("a", pa.string_view())])),
    ],
    ids=str,
)
@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_what_a_format_does_not_know_is_written_as_what_it_knows(
    type_: pa.DataType, format_: FileFormat
) -> None:
    schema, _ = storable_schema(pa.schema([("c", type_)]), format_)
    batch = fit(pa.record_batch([pa.nulls(3, type_)], names=["c"]), schema)
    form = Form(format_)

    table = read(form, written(form, schema, [batch]))

    assert table.schema.field("c").type == schema.field("c").type
    assert table["c"].null_count == 3


def test_row_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "GROUP_ROWS", 10)
    batch = pa.record_batch({"n": list(range(4))})

    content = written(Form("parquet"), batch.schema, [batch] * 7)

    file = pq.ParquetFile(io.BytesIO(content))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [
        8,
        8,
        8,
        4,
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_an_empty_table_has_its_columns(compression: Compression) -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.list_(pa.string()))])

    table = read(Form("parquet"), written(Form("parquet", compression), schema, []))

    assert table.num_rows == 0
    assert table.schema.equals(schema)


def test_polars_reads_dictionaries_that_differ_from_batch_to_batch() -> None:
    batches = [
        pa.record_batch({"c": pa.array(texts).dictionary_encode()})
        for texts in (["a", "b"], ["c", "a"])
    ]
    for form in (Form("parquet"), Form("arrow", "zstd")):
        schema, _ = storable_schema(batches[0].schema, form.format)
        content = written(form, schema, [fit(batch, schema) for batch in batches])
        load = pl.read_parquet if form.format == "parquet" else pl.read_ipc
        assert load(io.BytesIO(content))["c"].to_list() == ["a", "b", "c", "a"]


def test_vectors_are_not_looked_up_in_a_dictionary_texts_are() -> None:
    vector = pa.list_(pa.float32(), 2)
    schema = pa.schema([("v", vector), ("a.b", pa.string()), ("l", pa.list_(pa.int64()))])
    batch = pa.record_batch([[[1.0, 2.0]] * 3, ["x"] * 3, [[1]] * 3], schema=schema)

    content = written(Form("parquet"), schema, [batch])
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    leaves = [group.column(at) for at in range(group.num_columns)]

    assert [leaf.path_in_schema for leaf in leaves if not leaf.has_dictionary_page] == [
        "v.list.element"
    ]
    assert read(Form("parquet"), content).to_batches() == [batch]
