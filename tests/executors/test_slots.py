"""Workers by number: what each prefers, and that a run begun by several at once is one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import RunMismatch
from rowmill.events import Summary
from rowmill.executors.local import run
from rowmill.executors.opening import Opened, new_run, understand
from rowmill.executors.slots import Slot
from rowmill.leases import Leases
from rowmill.read import open_source
from rowmill.record import read_run, write_run
from rowmill.storage import open_storage
from tests.cases.compare import read_records
from tests.cases.endpoint import wait_until


@given(st.integers(1, 9), st.integers(0, 60), st.data())
def test_own_tasks_come_first_and_all_come(of: int, num: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, of - 1))

    found = Slot(index=index, of=of, patience_s=1.0).arranged(range(num))

    own = list(range(index, num, of))
    assert found[: len(own)] == own
    assert sorted(found) == list(range(num))


def test_workers_go_on_with_different_neighbours() -> None:
    """Who is done first begins with the tasks of the next one, and not all with those of the first."""
    after = [Slot(index=i, of=3, patience_s=1.0).arranged(range(9))[3] for i in range(3)]

    assert after == [1, 2, 0]


def test_one_worker_alone_takes_tasks_in_order() -> None:
    slot = Slot()

    assert slot.arranged([4, 2, 7]) == [2, 4, 7]
    assert slot.is_alone
    assert slot.fair_tasks(0) == float("inf")


def test_what_may_be_read_ahead_shrinks_with_what_is_left() -> None:
    slot = Slot(index=0, of=4, patience_s=1.0)

    assert [slot.fair_tasks(left) for left in (80, 17, 1, 0)] == [10, 3, 1, 1]


@given(left=st.integers(1, 10_000), of=st.integers(1, 1_000))
def test_the_first_round_of_claims_leaves_tasks_for_all(left: int, of: int) -> None:
    share = Slot(index=0, of=of, patience_s=1.0).fair_tasks(left)

    assert 1 <= share
    assert share * of <= max(of, left / 2 + of)


def opened_at(folder: Path, rows: int) -> Opened:
    file = folder / "in.jsonl"
    file.write_text("".join(json.dumps({"text": str(i)}) + "\n" for i in range(rows)))
    job = Job.model_validate(
        {
            "source": [str(file)],
            "output": str(folder / "out"),
            "prompt": "{text}",
            "engine": {"name": "echo"},
        }
    )
    return new_run(understand(job), open_source(job.source, spool=folder, read=job.read), "t")


def test_of_two_beginnings_of_one_run_the_first_counts(tmp_path: Path) -> None:
    storage = open_storage("memory://beginnings")
    first = opened_at(tmp_path, 10)
    later = msgspec.structs.replace(first.record, started="later", token="another")

    write_run(storage, first.record, first.cut)
    write_run(storage, later, first.cut)

    found = read_run(storage)
    assert found is not None
    assert found[0].started == first.record.started


def test_a_beginning_over_other_files_is_refused(tmp_path: Path) -> None:
    storage = open_storage("memory://other-files")
    first = opened_at(tmp_path, 10)
    write_run(storage, first.record, first.cut)
    other = opened_at(tmp_path, 11)

    with pytest.raises(RunMismatch, match="over other files"):
        write_run(storage, other.record, other.cut)


def test_a_worker_asks_what_it_has_while_others_hold_the_rest(tmp_path: Path) -> None:
    """Two that wait for more rows before they start, each for the other's, would wait for ever."""
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"text": str(i)}) + "\n" for i in range(40)))
    job = Job.model_validate(
        {
            "source": [str(file)],
            "output": "memory://held",
            "prompt": "{text}",
            "engine": {"name": "echo"},
            "run": {"task_rows": 10},
        }
    )
    storage = open_storage("memory://held")
    ends: list[Summary] = []

    def work() -> None:
        slot = Slot(index=0, of=2, patience_s=60.0)
        ends.append(run(job, token="t", slot=slot))

    worker = threading.Thread(target=work, daemon=True)
    with Leases(storage, worker="other", token="t", lease_s=30.0) as others:
        assert all(others.claim(task) for task in (1, 2, 3))
        worker.start()
        wait_until(lambda: storage.size(rundir.commit(0)) is not None, "a commit")
    worker.join(60)

    assert [end.not_done for end in ends] == [0]
    assert storage.size(rundir.DONE) is not None


@pytest.mark.slow
def test_workers_in_a_folder_share_a_run_and_failed_rows_fail_none(tmp_path: Path) -> None:
    """Locks of files in place of leases of a store; as elements of a Slurm array they are told by its variables."""
    rows = "".join(json.dumps({"id": i, "text": f"row {i}"}) + "\n" for i in range(600))
    (tmp_path / "in.jsonl").write_text(rows)
    (tmp_path / "job.toml").write_text(
        'source = "in.jsonl"\noutput = "out"\nprompt = "{text}"\n[engine]\nname = "echo"\n'
        'delay_s = 0.05\nseats = 4\nfaults = [{contains = "row 77", action = "error"}]\n'
        "[run]\ntask_rows = 20\nlease_s = 2\n[plan]\nwindow_rows = 16\n"
    )

    def start(index: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "rowmill", "worker", "job.toml"]
        told = {"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_TASK_COUNT": "3"}
        told["SLURM_ARRAY_JOB_ID"] = "41"
        return subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **told})

    workers = [start(index) for index in range(3)]

    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0]
    (part,) = (tmp_path / "out" / "results").iterdir()
    found = read_records(part)
    assert [record["id"] for record in found] == list(range(600))
    assert Counter(record["rowmill_status"] for record in found) == {"ok": 599, "error": 1}
