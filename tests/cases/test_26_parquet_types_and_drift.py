"""Case 26: every type of a table is carried exactly; files that differ in their columns are one input, and told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.cases.command import INPUTS, OK, SOME_FAILED, check_whole, job, results, rowmill, run
from tests.cases.compare import Record, by_id, differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "26"
TYPES = CASE / "types.parquet"
DRIFT = [f"p{n}.parquet" for n in range(5)]
EXPECTED_TYPES = read_records(CASE / "expected_types.jsonl")
EXPECTED_DRIFT = read_records(CASE / "expected_drift.jsonl")
AS_JSON: dict[str, list[Any]] = {
    "id": ["t0", "t1", "t2", "t3"],
    "prompt": ["red", "green", "red", None],
    "view": ["a", "b", "c", "d"],
    "nul": [None] * 4,
    "bin": ["AP8=", "eA==", None, ""],
    "big": [2**63 - 1, -(2**63), 0, None],
    "u64": [18446744073709551615, 1, 2, 3],
    "dec": ["12345678901234567890.123"] * 4,
    "ts": ["2024-03-31T02:30:00.123456Z"] * 4,
    "day": ["0001-01-01"] * 4,
    "f": ["NaN", "Infinity", -0.0, 0.1],
    "tags": [["x", None], [], None, ["y"]],
    "st": [{"a": 1, "b": [{"c": "d"}]}] * 4,
    "mp": [{"k": 1}, {}, None, {"z": None}],
    "b": [True, None, False, True],
}
K = [1, 2, 2**40, 3, 1.5, None, "7", "8", 4, 5]
"""As lines hold it; the text that holds all five types has the same digits."""
LABEL = [None, None, "s", "t", None, None, "s", "s", "u", None]
EXTRA = [None] * 6 + [1, 2] + [None] * 2


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_three_answers_and_one_error(tmp_path: Path, serve: Serve, format_: str) -> None:
    endpoint = serve()

    finished = run(TYPES, tmp_path / "out", endpoint=endpoint, sets={"output.format": format_})
    records = check_whole(finished, tmp_path / "out", 4)

    assert finished.code == SOME_FAILED
    assert differences(EXPECTED_TYPES, records) == []
    assert endpoint.hits == 3
    if format_ == "jsonl":
        assert {name: [r[name] for r in records] for name in AS_JSON} == AS_JSON
        assert math.copysign(1, records[2]["f"]) == -1
    else:
        check_typed(tmp_path / "out" / "results" / "part-00000.parquet")


def check_typed(file: Path) -> None:
    source, target = pq.read_table(TYPES), pq.read_table(file)
    for field in source.schema:
        assert target.schema.field(field.name).type == field.type
        ours, theirs = target[field.name], source[field.name]
        if field.name == "f":  # no NaN equals another
            assert pc.is_nan(ours).equals(pc.is_nan(theirs))
            ours, theirs = ours[1:], theirs[1:]
        assert ours.equals(theirs), field.name


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_files_that_drift_are_read_whole(tmp_path: Path, serve: Serve, format_: str) -> None:
    finished = run(
        CASE / "drift", tmp_path / "out", endpoint=serve(), sets={"output.format": format_}
    )
    records = check_whole(finished, tmp_path / "out", 10)

    assert finished.code == OK
    # One column has one type in a table: ids that are numbers in one file are their digits there.
    as_text = format_ == "parquet"
    expected = [{**r, "id": str(r["id"]) if as_text else r["id"]} for r in EXPECTED_DRIFT]
    assert differences(expected, records) == []
    assert [text_of(record["k"]) if as_text else record["k"] for record in records] == [
        text_of(k) if as_text else k for k in K
    ]
    assert [record.get("label") for record in records] == LABEL
    assert [record.get("extra") for record in records] == EXTRA
    check_drift_told(finished.stderr)
    for name in DRIFT:
        assert name in finished.stderr


def text_of(value: Any) -> str | None:
    return None if value is None else str(value)


def check_drift_told(words: str) -> None:
    """Every column that differs, with a file of each way it is."""
    (note,) = [line for line in words.splitlines() if "columns differ between files" in line]
    for told in (
        "`id` is string in p0.parquet, large_string in p2.parquet, int64 in p4.parquet",
        "`label` is null in p0.parquet, string in p1.parquet, absent in p2.parquet",
        "`k` is int32 in p0.parquet, int64 in p1.parquet, double in p2.parquet",
        "string in p3.parquet",
        "`extra` is absent in p0.parquet, int64 in p3.parquet",
    ):
        assert told in note
    assert "`prompt`" not in note


def test_check_tells_of_the_drift_before_anything_is_sent() -> None:
    finished = rowmill("check", job(CASE / "drift", None), as_json=False)

    assert finished.code == OK, finished.stderr
    check_drift_told(finished.stdout)
    assert all(name in finished.stdout for name in DRIFT)
    ((note,),) = [rowmill("check", job(CASE / "drift", None)).told["notes"]]
    check_drift_told(note)


def test_times_of_spark_are_carried_to_the_microsecond(tmp_path: Path) -> None:
    source, out = tmp_path / "spark.parquet", tmp_path / "out"
    micros = [-62_135_596_800_000_000, -1, 1, 253_402_300_799_999_999, None]
    times = pa.array(micros, pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"prompt": list("abcde"), "at": times})
    pq.write_table(table, source, use_deprecated_int96_timestamps=True)

    finished = run(source, out, "--prompt", "{prompt} at {at}", sets={"kind": "generate"})
    records: list[Record] = check_whole(finished, out, 5)

    assert pq.read_table(out / "results")["at"].equals(table["at"])
    lines = rowmill("run", job(source, out, "--prompt", "{prompt} at {at}",
                               sets={"kind": "generate", "output.format": "jsonl"}))  # fmt: skip
    assert lines.code == SOME_FAILED, lines.stderr
    assert [record["at"] for record in results(out)] == [
        "0001-01-01T00:00:00.000000",
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00.000001",
        "9999-12-31T23:59:59.999999",
        None,
    ]
    assert by_id(records).keys() == {f"spark.parquet:{n}" for n in range(1, 6)}
