"""A run of the real journey -> what lies in its event file."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

import rowmill
from rowmill.eventlog import EventLog, WorkerEvents, read_workers
from rowmill.events import Began, EngineReady, Planned, Published, Summary, TaskBegan, TaskEnded
from rowmill.executors import run as run_job
from rowmill.report import status
from rowmill.storage import open_storage
from rowmill.telemetry import Sample

ROWS = 3000
SUMS = ("done", "prompt_tokens", "rows_read", "rows_planned", "rows_fed", "rows_answered")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 3,000 rows, a hundredth of them bad, on an engine that takes its time."""
    folder = tmp_path_factory.mktemp("recorded")
    rows = ({"prompt": f"row {i}" if i % 100 else None} for i in range(ROWS))
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = rowmill.Job.model_validate(
        {
            "source": str(folder / "in.jsonl"),
            "output": str(folder / "out"),
            "raw": True,
            "engine": {"name": "echo", "seats": 64, "delay_s": 0.15},
        }
    )
    run_job(job)
    return folder / "out"


@pytest.fixture
def found(out: Path) -> WorkerEvents:
    (one,) = read_workers(open_storage(str(out)))
    return one


def test_a_run_says_what_it_did_and_each_task_has_its_lines(found: WorkerEvents) -> None:
    began, ended = found.of(TaskBegan), found.of(TaskEnded)
    samples = [sample for _, sample in found.of(Sample)]
    last = samples[-1]

    assert Began is type(found.moments[0].event)
    assert Summary is type(found.moments[-1].event)
    assert found.last(Planned)
    assert found.last(Published)
    assert {task.task for _, task in began} == {task.task for _, task in ended} == {0, 1, 2}
    assert ROWS == sum(task.rows for _, task in ended)
    assert 30 == sum(task.failed for _, task in ended) == last.failed
    assert (ROWS, ROWS - 30) == (last.done, last.rows_answered)
    assert all(
        getattr(b, name) >= getattr(a, name) for a, b in pairwise(samples) for name in SUMS
    )
    ready = found.last(EngineReady)
    assert ready is not None
    assert ("echo", 64) == (ready.name, ready.seats)


def test_waits_are_where_they_belong(found: WorkerEvents) -> None:
    """The engine is slow: rows wait before it, its seats are taken, and the feed has no room."""
    last = found.of(Sample)[-1][1]
    feed = last.stages["feed"]

    assert feed.blocked_s > 5 * feed.starved_s
    assert last.stages["read"].worked_s < last.active_s
    assert last.empty_s < 0.25 * last.active_s
    assert last.cpu_s["engine"] > 0


def test_status_says_the_verdict_of_the_summary(found: WorkerEvents, out: Path) -> None:
    summary = found.last(Summary)
    told = status(str(out))

    assert summary is not None
    assert summary.verdict is not None
    assert told.verdict == summary.verdict
    assert not any(line.startswith("slow") for line in told.lines())


def test_events_that_this_version_does_not_know_and_torn_lines_are_passed_over(
    found: WorkerEvents, out: Path
) -> None:
    (file,) = (out / "events").glob("*.jsonl")
    with file.open("ab") as more:
        more.write(b'{"at":9,"event":"of-tomorrow","x":1}\n{"at":9,"event":"note","te')

    (again,) = read_workers(open_storage(str(out)))

    assert len(found.moments) == len(again.moments)


def test_of_a_long_file_both_ends_are_read(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    log = EventLog(storage, "w")
    log.add(Began(time="2026", host="h", pid=1, cores=1, memory_bytes=1, version=""))
    for i in range(500):
        log.add(Sample(rows_fed=i))
    log.close()

    (found,) = read_workers(storage, most_bytes=2000)
    fed = [sample.rows_fed for _, sample in found.of(Sample)]

    assert found.last(Began) is not None
    assert (0, 499) == (fed[0], fed[-1])
    assert sorted(fed) == fed
    assert 4 < len(fed) < 100
