"""Case 31: thousands of files of one row are read with few handles, little memory, and written as few files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases.command import OK, Finished, check_whole, job, start
from tests.cases.endpoint import Serve
from tests.cases.memory import MIB, MemoryWatch

FILES = 3000
FEW_HANDLES = ("bash", "-c", 'ulimit -n 256; exec "$0" "$@"')
SEATS = {"engine.seats": 32}


def write_lines(folder: Path, number: int) -> None:
    row = json.dumps({"id": f"f{number:05d}", "prompt": f"file {number}"})
    end = "\n" if number % 2 else ""
    (folder / f"part-{number:05d}.jsonl").write_text(row + end)


def write_table(folder: Path, number: int) -> None:
    table = pa.table({"id": [f"f{number:05d}"], "prompt": [f"file {number}"]})
    pq.write_table(table, folder / f"part-{number:05d}.parquet")


@pytest.mark.parametrize(
    "write", [write_lines, pytest.param(write_table, marks=pytest.mark.slow)]
)
def test_thousands_of_files_are_read_with_few_handles(
    tmp_path: Path, serve: Serve, write: Callable[[Path, int], None]
) -> None:
    folder, out, log = tmp_path / "many", tmp_path / "out", tmp_path / "words"
    folder.mkdir()
    for number in range(FILES):
        write(folder, number)
    endpoint = serve(is_logged=False)
    began = time.monotonic()
    process = start(job(folder, out, endpoint=endpoint, sets=SEATS), log, before=FEW_HANDLES)
    watch = MemoryWatch(process.pid)
    try:
        code = process.wait(100)
    finally:
        peak = watch.close()
        process.kill()
    seconds = time.monotonic() - began
    words = log.read_text().splitlines()

    records = check_whole(Finished(code, words[-1], "\n".join(words)), out, FILES)

    assert code == OK
    assert [record["id"] for record in records] == [f"f{n:05d}" for n in range(FILES)]
    assert endpoint.hits == FILES
    assert "too many open files" not in "\n".join(words).lower()
    assert len([path for path in out.rglob("*") if path.is_file()]) < 36
    assert peak < 500 * MIB
    assert seconds < 60
