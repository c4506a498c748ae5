"""Case 27: no rows are a clean run without an engine; what is no file of rows is refused by name."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.cases.command import INPUTS, OK, check_refused, check_whole, job, rowmill, run
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve

EXPECTED_MIXED = read_records(INPUTS / "27" / "expected_mixed.jsonl")
EMPTY = pa.table({"id": pa.array([], pa.string()), "prompt": pa.array([], pa.string())})
TWO = pa.table({"id": ["x", "y"], "prompt": ["p x", "p y"]})


def parquet(table: pa.Table) -> Callable[[Path], None]:
    return lambda file: pq.write_table(table, file)


def raw(content: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(content)


def cut(file: Path) -> None:
    pq.write_table(TWO, file)
    file.write_bytes(file.read_bytes()[:300])


def only_empty_groups(file: Path) -> None:
    with pq.ParquetWriter(file, TWO.schema) as writer:
        writer.write_table(TWO.slice(0, 0))


ONLY_EMPTY: dict[str, Callable[[Path], object]] = {
    "zero-rows.parquet": parquet(EMPTY),
    "empty.jsonl": raw(b""),
    "header.csv": raw(b"id,prompt\n"),
    "e.jsonl.gz": raw(gzip.compress(b"", mtime=0)),
}
MIXED: dict[str, Callable[[Path], object]] = {
    "a-zero.parquet": parquet(EMPTY),
    "m-two.parquet": parquet(TWO),
    "n-empty-groups.parquet": only_empty_groups,
    "z-zero.parquet": parquet(EMPTY),
}
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "zero-bytes.parquet": (raw(b""), "0 bytes"),
    "zero-bytes.csv": (raw(b""), "header is missing"),
    "magic-only.parquet": (raw(b"PAR1PAR1"), "cannot be read as Parquet"),
    "cut.parquet": (cut, "cannot be read as Parquet"),
    "no-columns.parquet": (parquet(pa.table({})), "no columns"),
}


@pytest.mark.parametrize("name", ONLY_EMPTY)
@pytest.mark.parametrize("format_", ["auto", pytest.param("parquet", marks=pytest.mark.slow)])
def test_no_rows_are_a_clean_run_without_an_engine(
    tmp_path: Path, name: str, format_: str
) -> None:
    source, out = tmp_path / name, tmp_path / "out"
    ONLY_EMPTY[name](source)

    finished = run(source, out, sets={"output.format": format_})

    assert check_whole(finished, out, 0) == []
    assert finished.code == OK
    assert finished.told["engine_start_s"] == 0
    assert not (out / "engines").exists()
    if format_ == "parquet" or name == "zero-rows.parquet":
        table = ds.dataset(str(out / "results")).to_table()
        assert table.num_rows == 0
        assert {"rowmill_row", "rowmill_status", "rowmill_text"} <= set(table.column_names)
        if name.endswith((".parquet", ".csv")):
            assert table.schema.field("prompt").type == pa.string()


def test_no_request_is_sent_for_no_rows(tmp_path: Path, serve: Serve) -> None:
    folder, endpoint = tmp_path / "in", serve()
    folder.mkdir()
    for name, write in ONLY_EMPTY.items():
        write(folder / name)

    finished = run(folder, tmp_path / "out", endpoint=endpoint)

    assert check_whole(finished, tmp_path / "out", 0) == []
    assert endpoint.hits == 0
    assert "empty files (1)" in finished.stderr


def test_a_run_over_no_rows_is_a_run(tmp_path: Path) -> None:
    """It has a state, is not begun twice, and files may join it."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "empty.jsonl").touch()
    assert run(folder, out).code == OK

    assert rowmill("status", [str(out)]).told["state"] == "finished"
    assert run(folder, out).code == OK
    (folder / "new.jsonl").write_text('{"id": "n", "prompt": "p"}\n')
    assert "--append" in check_refused(run(folder, out))
    joined = rowmill("run", [*job(folder, out), "--append"])
    assert [record["id"] for record in check_whole(joined, out, 1)] == ["n"]


@pytest.mark.parametrize("format_", ["auto", "jsonl"])
def test_rows_beside_empty_files_are_answered(
    tmp_path: Path, serve: Serve, format_: str
) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name, write in MIXED.items():
        write(folder / name)

    finished = run(folder, out, endpoint=serve(), sets={"output.format": format_})
    records = check_whole(finished, out, 2)

    assert finished.code == OK
    assert differences(EXPECTED_MIXED, records) == []
    assert records[0]["rowmill_row"] == "m-two.parquet:1"


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_file_of_rows_is_refused_by_name(tmp_path: Path, name: str) -> None:
    write, said = BAD[name]
    write(tmp_path / name)

    words = check_refused(run(tmp_path / name, tmp_path / "out"))

    assert name in words
    assert said in words
    assert not (tmp_path / "out").exists()


def test_a_pattern_that_matches_nothing_is_refused_with_it(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint, pattern = serve(), tmp_path / "nothing-*.jsonl"

    words = check_refused(run(pattern, tmp_path / "out", endpoint=endpoint), endpoint=endpoint)

    assert str(pattern) in words
    assert not (tmp_path / "out").exists()
