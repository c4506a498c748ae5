"""Case 28: of a folder that other programs wrote, the files of rows are read, each once, and the rest is counted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cases.command import INPUTS, OK, check_whole, job, rowmill, run
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve

EXPECTED = read_records(INPUTS / "28" / "expected.jsonl")
FILES = ["part-00000.snappy.parquet", "part-00001.snappy.parquet", "sub/part-00002.parquet"]
ROWS = dict(zip(FILES, ["ab", "cd", "ef"], strict=True))
WRONG = {
    "_temporary/0/part-00001.parquet": "temporary",
    ".hidden.parquet": "hidden",
    "._part-00000.snappy.parquet.parquet": "appledouble",
    "_delta_log/00000.checkpoint.parquet": "delta",
    ".ipynb_checkpoints/part-00000.parquet": "checkpoint",
}
NO_DATA = {
    "_SUCCESS": b"",
    ".part-00000.snappy.parquet.crc": b"crc\0",
    ".DS_Store": b"\0\0\0\1Bud1",
    "README.md": b"# not data\n",
    "part-00003.parquet.tmp": b"PAR1",
}
SKIPPED = [
    "hidden folders (3)",
    "hidden files (5)",
    "`.md` files (1)",
    "`.tmp` files (1)",
    "files named before (1)",
]


@pytest.fixture(scope="module")
def spark_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("case28") / "spark_out"
    for name, ids in ROWS.items():
        write(folder / name, list(ids))
    for name, what in WRONG.items():
        write(folder / name, [f"WRONG-{what}"])
    for name, content in NO_DATA.items():
        (folder / name).write_bytes(content)
    (folder / "link.parquet").symlink_to(FILES[0])
    (folder / "empty_dir.parquet").mkdir()
    return folder


def write(file: Path, ids: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids, "prompt": [f"text {id_}" for id_ in ids]}), file)


@pytest.mark.parametrize("pattern", ["", "**/*.parquet"], ids=["folder", "pattern"])
def test_six_rows_of_three_files_are_read_once(
    tmp_path: Path, serve: Serve, spark_out: Path, pattern: str
) -> None:
    source = spark_out / pattern if pattern else spark_out
    endpoint = serve()

    finished = run(source, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 6)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    assert endpoint.hits == 6
    assert [record["rowmill_row"] for record in records] == [
        f"{name}:{line}" for name in FILES for line in (1, 2)
    ]
    assert f"files   {', '.join(FILES)}" in finished.stderr
    assert "files named before (1)" in finished.stderr


def test_the_plan_lists_what_is_read_and_why_others_are_not(spark_out: Path) -> None:
    finished = rowmill("check", job(spark_out, None), as_json=False)

    assert finished.code == OK, finished.stderr
    assert f"files     {', '.join(FILES)}" in finished.stdout
    (note,) = [line for line in finished.stdout.splitlines() if "passed over" in line]
    assert all(skipped in note for skipped in SKIPPED)
    told = rowmill("check", job(spark_out, None)).told
    assert told["names"] == FILES
    assert all(skipped in told["notes"][0] for skipped in SKIPPED)
