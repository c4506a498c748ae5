"""Case 29: folders such as `region=007` are columns of text, in every format; a file's own column counts first."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases.command import INPUTS, OK, SOME_FAILED, check_whole, job, rowmill, run
from tests.cases.compare import Record, by_id, differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "29"
EXPECTED = read_records(CASE / "expected.jsonl")
PARTITIONS = {r["id"]: r for r in read_records(CASE / "expected_partitions.jsonl")}
TEMPLATE = ("--prompt", "Region {region} on {dt}", "--set", "kind=generate")
SUFFIXES = [".parquet", ".arrow", ".csv", ".jsonl", ".jsonl.gz"]
FAST = [".parquet", ".jsonl.gz"]


def table(root: Path, suffix: str) -> Path:
    """Four partitions of a row; the last file has the column itself."""
    folder = root / "table"
    nowhere = "dt=__HIVE_DEFAULT_PARTITION__"
    for part, name, row in [
        ("region=007/dt=2024-01-01", "a", {"id": "a1", "prompt": "one"}),
        ("region=10/dt=2024-01-02", "b", {"id": "b1", "prompt": "two"}),
        (f"region=EU%2FWest/{nowhere}", "c", {"id": "c1", "prompt": "three"}),
        (
            "region=1e3/dt=2024-01-03",
            "d",
            {"id": "d1", "prompt": "four", "region": "in-file"},
        ),
    ]:
        (folder / part).mkdir(parents=True)
        write(folder / part / f"{name}{suffix}", row)
    return folder


def write(file: Path, row: dict[str, Any]) -> None:
    line = json.dumps(row).encode() + b"\n"
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row]), file)
    elif file.suffix == ".arrow":
        rows = pa.Table.from_pylist([row])
        with pa.ipc.new_file(str(file), rows.schema) as writer:
            writer.write_table(rows)
    elif file.suffix == ".csv":
        with file.open("w", newline="") as text:
            csv.writer(text).writerows([row.keys(), row.values()])
    else:
        file.write_bytes(gzip.compress(line) if file.suffix == ".gz" else line)


def values(records: list[Record]) -> dict[str, tuple[Any, Any]]:
    return {id_: (r["region"], r["dt"]) for id_, r in by_id(records).items()}


WANTED = {
    id_: ("in-file" if id_ == "d1" else r["region"], r["dt"]) for id_, r in PARTITIONS.items()
}


@pytest.mark.parametrize(
    "suffix", [s if s in FAST else pytest.param(s, marks=pytest.mark.slow) for s in SUFFIXES]
)
@pytest.mark.parametrize("format_", ["auto", pytest.param("jsonl", marks=pytest.mark.slow),
                                     pytest.param("parquet", marks=pytest.mark.slow)])  # fmt: skip
def test_values_are_the_texts_of_the_folders(
    tmp_path: Path, serve: Serve, suffix: str, format_: str
) -> None:
    source = table(tmp_path, suffix)

    finished = run(source, tmp_path / "out", endpoint=serve(), sets={"output.format": format_})
    records = check_whole(finished, tmp_path / "out", 4)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    assert values(records) == WANTED
    if suffix in (".parquet", ".arrow", ".csv"):
        assert "`region` is a column of region=1e3/dt=2024-01-03/d" in finished.stderr
        assert "the file's own counts" in finished.stderr
        assert "columns differ" not in finished.stderr


@pytest.mark.parametrize(
    "suffix",
    [
        ".parquet",
        pytest.param(".jsonl", marks=pytest.mark.slow),
        pytest.param(".csv", marks=pytest.mark.slow),
    ],
)
def test_a_template_has_them(tmp_path: Path, serve: Serve, suffix: str) -> None:
    endpoint = serve()

    finished = run(table(tmp_path, suffix), tmp_path / "out", *TEMPLATE, endpoint=endpoint)
    found = by_id(check_whole(finished, tmp_path / "out", 4))

    assert finished.code == SOME_FAILED
    assert sorted(body["prompt"] for body in endpoint.bodies()) == [
        "Region 007 on 2024-01-01",
        "Region 10 on 2024-01-02",
        "Region in-file on 2024-01-03",
    ]
    assert "`dt` is null" in found["c1"]["rowmill_error"]


@pytest.mark.parametrize("suffix", [".parquet", pytest.param(".jsonl", marks=pytest.mark.slow)])
def test_switched_off_there_are_none(tmp_path: Path, suffix: str) -> None:
    sets = {"read.partitions": "off", "output.format": "jsonl"}

    finished = run(table(tmp_path, suffix), tmp_path / "out", sets=sets)
    records = check_whole(finished, tmp_path / "out", 4)

    own = [{k for k in r if not k.startswith("rowmill_")} for r in records]
    assert own == [
        {"id", "prompt"},
        {"id", "prompt"},
        {"id", "prompt", "region"},
        {"id", "prompt"},
    ]


def test_check_tells_of_the_clash(tmp_path: Path) -> None:
    (note,) = rowmill("check", job(table(tmp_path, ".parquet"), None)).told["notes"]

    assert "`region` is a column of region=1e3/dt=2024-01-03/d.parquet" in note
