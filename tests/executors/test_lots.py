"""Runs whose input is sorted on the disk: the same results, rows that begin alike asked together."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rowmill
from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.executors import local
from rowmill.report import export, trace
from rowmill.storage import open_storage

SECONDS = "rowmill_seconds"


def lines(rows: int) -> list[str]:
    """Groups of ten that begin alike, shuffled, blank and bad lines among them."""
    made = [
        {"id": i, "doc": f"{i // 10:05d} begins so " * 12, "q": f"question {i % 10}"}
        for i in range(rows)
    ]
    random.Random(1).shuffle(made)
    found = [json.dumps(row) for row in made]
    for at in range(0, rows, 90):
        found[at] += "\n" if at % 180 else '\n{"bad'
    return found


def job_of(folder: Path, out: str, **plan: Any) -> Job:
    return Job.model_validate(
        {
            "source": str(folder / "in"),
            "output": str(folder / out),
            "prompt": "{doc}{q}",
            "engine": {"name": "echo", "seats": 8, "log": str(folder / f"{out}.log")},
            "sampling": {"temperature": 0, "max_tokens": 8},
            "plan": {"window_rows": 64, **plan},
            "run": {"task_rows": 100},
        }
    )


def source(folder: Path, rows: int = 600) -> Path:
    (folder / "in").mkdir()
    made = lines(rows)
    half = rows // 2
    (folder / "in/a.jsonl").write_text("\n".join(made[:half]) + "\n")
    (folder / "in/b.jsonl").write_text("\n".join(made[half:]) + "\n")
    return folder


def results(folder: Path, out: str) -> list[dict[str, Any]]:
    text = "".join(p.read_text() for p in sorted((folder / out / "results").iterdir()))
    return [json.loads(line) | {SECONDS: 0} for line in text.splitlines()]


def changes(folder: Path, out: str) -> int:
    """How often the next row that was asked begins otherwise."""
    keys = [int(line.split()[0]) for line in (folder / f"{out}.log").read_text().splitlines()]
    docs = {}
    for shard, name in enumerate(("a", "b")):
        for ordinal, line in enumerate((folder / f"in/{name}.jsonl").read_text().split("\n")):
            if line.endswith("}"):
                docs[shard << 40 | ordinal] = json.loads(line)["doc"]
    return sum(docs[a] != docs[b] for a, b in pairwise(keys))


def test_results_are_those_of_windows_and_groups_are_asked_together(tmp_path: Path) -> None:
    source(tmp_path)
    windows = rowmill.run(job_of(tmp_path, "windows", sort="window"))
    sorted_ = rowmill.run(job_of(tmp_path, "sorted", sort="input"))

    assert results(tmp_path, "windows") == results(tmp_path, "sorted")
    assert changes(tmp_path, "sorted") < changes(tmp_path, "windows") / 4
    assert not list((tmp_path / "sorted/lots").iterdir())
    assert sorted_.total == windows.total == 604


def test_a_run_that_was_stopped_goes_on_also_where_its_lots_are_gone(tmp_path: Path) -> None:
    source(tmp_path)
    whole = rowmill.run(job_of(tmp_path, "whole", sort="window"))
    job = job_of(tmp_path, "out", sort="input")
    capped = job.run.model_copy(update={"max_total_tokens": 20_000})
    first = rowmill.run(job.model_copy(update={"run": capped}))
    left = sorted(path.name for path in (tmp_path / "out/lots").iterdir())
    half = tmp_path / "half.jsonl"
    exported = export(str(tmp_path / "out"), str(half))
    shutil.rmtree(tmp_path / "out/lots")
    second = rowmill.run(job)

    assert (first.exit_code, second.exit_code) == (5, whole.exit_code)
    assert left == [f"{task:07d}.zst" for task in range(7)]
    assert 0 < exported.rows == 604 - exported.not_done < 604
    expected = results(tmp_path, "whole")
    assert expected == results(tmp_path, "out")
    found = [json.loads(line) | {SECONDS: 0} for line in half.read_text().splitlines()]
    # What was written by then, in input order.
    assert found == [row for row in expected if row in found]


@pytest.mark.slow
def test_a_sorted_run_can_be_looked_at_retried_and_appended_to(tmp_path: Path) -> None:
    source(tmp_path)
    job = job_of(tmp_path, "out", sort="input")
    rowmill.run(job)
    journey = trace(str(tmp_path / "out"), "a.jsonl:1")
    table = tmp_path / "all.parquet"
    exported = export(str(tmp_path / "out"), str(table))

    assert journey.outcome is not None
    assert journey.task in range(7)
    assert exported.rows == 604 == pq.read_table(table).num_rows

    again = local.retry(job)

    assert (again.total, again.failed, again.asked) == (604, 4, 4)

    (tmp_path / "in/c.jsonl").write_text('{"id": 9999, "doc": "d", "q": "q"}\n')
    joined = rowmill.run(job, append=True)

    assert (joined.total, joined.ok) == (605, 601)
    assert results(tmp_path, "out")[-1]["id"] == 9999


@pytest.mark.slow
def test_tables_are_sorted_like_lines(tmp_path: Path) -> None:
    source(tmp_path)
    made = [
        json.loads(line) for text in lines(600) for line in text.split("\n") if "doc" in line
    ]
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "in/a.parquet")
    found = [rowmill.run(job_of(tmp_path, sort, sort=sort)) for sort in ("window", "input")]
    tables = [pq.read_table(tmp_path / sort / "results") for sort in ("window", "input")]

    assert [one.ok for one in found] == [600, 600]
    assert tables[0].drop_columns([SECONDS]) == tables[1].drop_columns([SECONDS])


def test_completion_order_is_refused_for_an_input_that_was_sorted(tmp_path: Path) -> None:
    source(tmp_path, 60)
    job = job_of(tmp_path, "out", sort="input")
    completion = job.output.model_copy(update={"order": "completion"})
    with pytest.raises(ConfigError, match="input order alone"):
        rowmill.run(job.model_copy(update={"output": completion}))

    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_lots_lie_beside_the_outcomes_where_the_output_is_no_folder(tmp_path: Path) -> None:
    source(tmp_path)
    rowmill.run(job_of(tmp_path, "whole", sort="window"))
    job = job_of(tmp_path, "out", sort="input")
    url = f"memory://{tmp_path.name}"
    stopped = job.run.model_copy(update={"max_total_tokens": 20_000})
    output = job.output.model_copy(update={"path": url})
    job = job.model_copy(update={"output": output})
    rowmill.run(job.model_copy(update={"run": stopped}))
    storage = open_storage(url)

    assert len(storage.list("lots/")) == 7
    # As on another machine, with a lot that was lost.
    storage.remove("lots/0000006.zst")
    rowmill.run(job)

    assert storage.list("lots/") == []
    parts = b"".join(storage.read(name) for name in storage.list("results/"))
    rows = [json.loads(line) | {SECONDS: 0} for line in parts.splitlines()]
    assert results(tmp_path, "whole") == rows
    assert not list(Path(tempfile.gettempdir()).glob("rowmill-lots-*/.tmp-*"))
