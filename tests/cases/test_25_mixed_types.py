"""Case 25: a column of many types, or one that comes late, is carried exactly, as lines and as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    Finished,
    check_whole,
    job,
    kill,
    rowmill,
    run,
    start,
)
from tests.cases.compare import Record, differences, read_records
from tests.cases.endpoint import Serve, wait_until

CASE = INPUTS / "25"
EXPECTED = read_records(CASE / "expected.jsonl")
SOURCES = {"input.jsonl": ["input.jsonl"], "late_type.jsonl": ["late_type.jsonl"],
           "late_key": ["late_key/part1.jsonl", "late_key/part2.jsonl"]}  # fmt: skip


def source_rows(name: str) -> list[Record]:
    return [record for file in SOURCES[name] for record in read_records(CASE / file)]


def published(finished: Finished, out: Path, format_: str) -> pa.Table:
    assert finished.code == OK, finished.stderr
    return ds.dataset(str(out / "results"), format=format_).to_table()


@pytest.mark.parametrize("name", SOURCES)
def test_lines_carry_every_type(tmp_path: Path, name: str) -> None:
    rows = source_rows(name)

    finished = run(CASE / name, tmp_path / "out")
    records = check_whole(finished, tmp_path / "out", len(rows))

    for row, record in zip(rows, records, strict=True):
        assert {key: record[key] for key in row} == row
        assert {k for k in record if not k.startswith("rowmill_")} == row.keys()


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_tables_carry_every_value(tmp_path: Path, name: str, format_: str) -> None:
    rows, out = source_rows(name), tmp_path / "out"

    finished = run(
        CASE / name, out, sets={"output.format": format_, "output.part_bytes": 65536}
    )

    table = published(finished, out, "ipc" if format_ == "arrow" else format_)
    assert table.num_rows == len(rows)
    assert set(table["rowmill_status"].to_pylist()) == {"ok"}
    for key in {key for row in rows for key in row}:
        is_text = (table.schema.field(key).metadata or {}).get(b"rowmill.json") == b"1"
        for row, value in zip(rows, table[key].to_pylist(), strict=True):
            assert value_of(value, is_text=is_text) == row.get(key)
    for file in sorted((out / "results").iterdir()):
        (pl.read_parquet if format_ == "parquet" else pl.read_ipc)(file)


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_answers_are_those_of_the_prompts(tmp_path: Path, serve: Serve, format_: str) -> None:
    finished = run(
        CASE / "input.jsonl",
        tmp_path / "out",
        endpoint=serve(),
        sets={"output.format": format_},
    )
    records = check_whole(finished, tmp_path / "out", 12)

    assert differences(EXPECTED, records) == []
    rows = read_records(CASE / "input.jsonl")
    assert [record.get("meta") for record in records] == [row.get("meta") for row in rows]


def value_of(value: Any, *, is_text: bool) -> Any:
    return json.loads(value) if is_text and value is not None else value


def test_mixed_columns_are_marked_and_others_typed(tmp_path: Path) -> None:
    finished = run(CASE / "input.jsonl", tmp_path / "out", sets={"output.format": "parquet"})

    schema = published(finished, tmp_path / "out", "parquet").schema
    assert schema.field("id").type == pa.string()
    assert (
        schema.field("id").metadata is None
        or b"rowmill.json" not in schema.field("id").metadata
    )
    assert (schema.field("meta").metadata or {})[b"rowmill.json"] == b"1"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv.gz", ".jsonl.zst"])
def test_a_run_that_is_not_whole_is_exported_in_any_format(
    tmp_path: Path, serve: Serve, suffix: str
) -> None:
    plan = [{"contains": "row 11", "action": {"type": "hang", "s": 3600}}]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    endpoint = serve(plan=tmp_path / "plan.json")
    source = tmp_path / "in.jsonl"
    source.write_bytes((CASE / "input.jsonl").read_bytes() + b"{cut\n")
    out, target = tmp_path / "out", tmp_path / f"x{suffix}"
    process = start(job(source, out, endpoint=endpoint), tmp_path / "words")
    try:
        wait_until(lambda: num_answered(out) == 12 or process.poll() is not None, "12 rows")
    finally:
        kill(process)

    finished = rowmill("export", [str(out), "-o", str(target)])

    assert finished.code == OK, finished.stderr
    assert finished.told["written"] == {"rows": 12, "not_done": 1}
    if suffix in (".parquet", ".arrow"):
        frame = (pl.read_parquet if suffix == ".parquet" else pl.read_ipc)(target)
        assert frame["id"].to_list() == [f"m{n:02d}" for n in range(11)] + [None]


def num_answered(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob("segments/*/*.jsonl"))
