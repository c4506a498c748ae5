"""The supervisor with real children: death, restart, poison, the parent's own death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import orphans
from rowmill.engines.care import Care
from rowmill.engines.ladder import Step
from rowmill.engines.supervise import Supervisor
from rowmill.rows import Outcome
from tests.engines.rows_of import byte_prompts


@contextmanager
def running(tmp_path: Path, care: Care | None = None, **options: Any) -> Iterator[Supervisor]:
    engine = EngineConfig(name="echo", tokenizer="bytes", **options)
    supervisor = Supervisor(
        engine, log=tmp_path / "engine.log", record=tmp_path / "engine.pid", care=care
    )
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.close()


def collect(supervisor: Supervisor) -> list[Outcome]:
    return [outcome for batch in supervisor.outcomes() for outcome in batch.unpack()]


def child_pid(supervisor: Supervisor) -> int:
    assert supervisor._process is not None
    return supervisor._process.pid


def wait_until(is_so: Any, wait_s: float = 10.0) -> None:
    deadline = time.monotonic() + wait_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_row_is_answered_once(tmp_path: Path) -> None:
    with running(tmp_path) as supervisor:
        for first in range(0, 5000, 500):
            texts = [f"row number {key}" for key in range(first, first + 500)]
            supervisor.submit(byte_prompts(texts, first_key=first))
        supervisor.finish()
        outcomes = collect(supervisor)

    assert [f"row number {key}" for key in range(5000)] == [
        outcome.text for outcome in sorted(outcomes, key=lambda o: o.key)
    ]


def test_killed_child_is_restarted_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "starts"
    with running(tmp_path, delay_s=0.3, seats=50, log=str(log)) as supervisor:
        supervisor.submit(byte_prompts([f"row {i}" for i in range(120)]))
        wait_until(lambda: log.read_bytes().count(b"\n") >= 50)
        os.kill(child_pid(supervisor), signal.SIGKILL)
        supervisor.finish()
        outcomes = collect(supervisor)

        assert supervisor.deaths == 1
    assert sorted(outcome.key for outcome in outcomes) == list(range(120))
    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert max(outcome.attempts for outcome in outcomes) == 2


def test_row_that_kills_the_engine_is_found_and_the_others_are_answered(tmp_path: Path) -> None:
    texts = [f"row {i}" for i in range(40)]
    texts[13] = "the poison row"
    faults = [{"contains": "poison", "action": "die"}]
    with running(tmp_path, faults=faults) as supervisor:
        supervisor.submit(byte_prompts(texts[:20]))
        supervisor.submit(byte_prompts(texts[20:], first_key=20))
        supervisor.finish()
        outcomes = collect(supervisor)

    assert sorted(outcome.key for outcome in outcomes) == list(range(40))
    failed = [outcome for outcome in outcomes if outcome.status == "error"]
    assert [(13, "killed_engine")] == [(o.key, o.error_kind) for o in failed]
    assert "SIGKILL" in str(failed[0].error)
    assert "poison" not in str(failed[0].error)


def test_row_that_kills_once_is_answered(tmp_path: Path) -> None:
    faults = [{"contains": "poison", "action": "die", "times": 1}]
    with running(tmp_path, faults=faults, log=str(tmp_path / "starts")) as supervisor:
        supervisor.submit(byte_prompts(["a", "poison", "b"]))
        supervisor.finish()
        outcomes = collect(supervisor)

    assert [2, 2, 2] == [outcome.attempts for outcome in outcomes]
    assert {"ok"} == {outcome.status for outcome in outcomes}


def test_engine_that_dies_on_every_row_ends_the_run(tmp_path: Path) -> None:
    with running(tmp_path, faults=[{"contains": "", "action": "die"}]) as supervisor:
        supervisor.submit(byte_prompts([f"row {i}" for i in range(8)]))
        supervisor.finish()

        with pytest.raises(errors.EngineDied, match="died on each of 5 rows"):
            collect(supervisor)


def test_rows_submitted_while_suspects_are_sorted_are_answered(tmp_path: Path) -> None:
    faults = [{"contains": "poison", "action": "die"}]
    outcomes: list[Outcome] = []
    with running(tmp_path, faults=faults) as supervisor:
        receiver = threading.Thread(target=lambda: outcomes.extend(collect(supervisor)))
        receiver.start()
        supervisor.submit(byte_prompts(["a", "b", "poison", "c"]))
        wait_until(lambda: supervisor.deaths >= 2)
        for first in range(100, 200, 10):
            supervisor.submit(byte_prompts(["later"] * 10, first_key=first))
        supervisor.finish()
        receiver.join(30)

    assert sorted(outcome.key for outcome in outcomes) == [0, 1, 2, 3, *range(100, 200)]
    assert [2] == [outcome.key for outcome in outcomes if outcome.status == "error"]


def test_wrong_setting_is_told_by_the_child_as_the_parent_would(tmp_path: Path) -> None:
    engine = EngineConfig(name="echo", delay=3)
    supervisor = Supervisor(engine, log=tmp_path / "engine.log")

    with pytest.raises(errors.BadJob, match="did you mean `delay_s`"):
        supervisor.start()
    supervisor.close()


def test_how_the_engine_died_is_told(tmp_path: Path) -> None:
    engine = EngineConfig(name="echo", tokenizer="bytes", delay_s=60)
    supervisor = Supervisor(engine, log=tmp_path / "engine.log")
    supervisor.start()
    assert supervisor._process is not None
    process = supervisor._process
    os.kill(process.pid, signal.SIGSEGV)

    assert "signal SIGSEGV" == process.end()
    supervisor.close()


def test_close_ends_the_group_and_removes_the_record(tmp_path: Path) -> None:
    with running(tmp_path) as supervisor:
        pid = child_pid(supervisor)
        assert (tmp_path / "engine.pid").exists()

    assert [] == list(orphans.members(pid))
    assert not (tmp_path / "engine.pid").exists()


PARENT = """
import sys, time
from pathlib import Path
from rowmill.config import EngineConfig
from rowmill.engines.supervise import Supervisor
folder = Path(sys.argv[1])
s = Supervisor(EngineConfig(name="echo", tokenizer="bytes"), log=folder / "log", record=folder / "pid")
s.start()
print(s._process.pid, flush=True)
time.sleep(600)
"""


def test_child_goes_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    # Stopped: no thread of the child can act, the kernel alone ends it.
    os.killpg(pid, signal.SIGSTOP)

    parent.kill()
    parent.wait()
    parent.stdout.close()

    wait_until(lambda: not list(orphans.members(pid)))


def test_engine_that_stands_still_is_ended_and_its_rows_are_answered(tmp_path: Path) -> None:
    faults = [{"contains": "13", "action": "freeze", "times": 1}]
    told: list[str] = []
    care = Care(stall_s=0.6, tell=told.append)
    with running(tmp_path, care, faults=faults, log=str(tmp_path / "starts")) as supervisor:
        supervisor.submit(byte_prompts([f"row {i}" for i in range(20)]))
        supervisor.finish()
        outcomes = collect(supervisor)

        assert supervisor.deaths == 1
    assert {"ok"} == {outcome.status for outcome in outcomes}
    assert "stood still" in told[0]


@pytest.mark.slow
def test_engine_that_is_stopped_from_outside_is_ended_also_while_rows_are_sent(
    tmp_path: Path,
) -> None:
    """A sender that waits for a full socket holds the lock that the supervisor needs after a death."""
    rows, size = 40, 300_000
    with running(tmp_path, Care(stall_s=1.0), context=10**6) as supervisor:
        os.killpg(child_pid(supervisor), signal.SIGSTOP)
        sender = threading.Thread(target=_send_large, args=(supervisor, rows, size))
        sender.start()
        outcomes = collect(supervisor)
        sender.join()

    assert list(range(rows)) == sorted(outcome.key for outcome in outcomes)


def _send_large(supervisor: Supervisor, rows: int, size: int) -> None:
    for key in range(rows):
        supervisor.submit(byte_prompts(["x" * size], first_key=key))
    supervisor.finish()


@pytest.mark.slow
def test_row_that_freezes_the_engine_is_found(tmp_path: Path) -> None:
    faults = [{"contains": "poison", "action": "freeze"}]
    with running(tmp_path, Care(stall_s=0.6), faults=faults) as supervisor:
        supervisor.submit(byte_prompts(["a", "poison", "b"]))
        supervisor.finish()
        outcomes = collect(supervisor)

    failed = [outcome for outcome in outcomes if outcome.status == "error"]
    assert [(1, "killed_engine")] == [(o.key, o.error_kind) for o in failed]
    assert "stood still" in str(failed[0].error)
    assert 3 == len(outcomes)


def test_engine_without_memory_comes_down_and_blames_no_row(tmp_path: Path) -> None:
    faults = [{"contains": "", "action": "oom", "above_seats": 8}]
    kept: list[Step] = []
    care = Care(keep=kept.append)
    with running(tmp_path, care, faults=faults, seats=16) as supervisor:
        supervisor.submit(byte_prompts([f"row {i}" for i in range(40)]))
        supervisor.finish()
        outcomes = collect(supervisor)

        assert supervisor.limits is not None
        assert 8 == supervisor.limits.seats
    assert [Step("seats", 16, 16, 8)] == kept
    assert {"ok"} == {outcome.status for outcome in outcomes}
    assert 2 == max(outcome.attempts for outcome in outcomes)


@pytest.mark.slow
def test_steps_of_an_earlier_start_are_taken_at_once_unless_the_job_says_otherwise(
    tmp_path: Path,
) -> None:
    taken = [Step("seats", 16, 16, 8)]
    for given, seats in ((16, 8), (12, 12)):
        with running(tmp_path, Care(taken=taken), seats=given) as supervisor:
            assert supervisor.limits is not None
            assert seats == supervisor.limits.seats


@pytest.mark.slow
def test_memory_that_no_step_helps_against_ends_the_run_with_what_helps(tmp_path: Path) -> None:
    faults = [{"contains": "", "action": "oom"}]
    with running(tmp_path, faults=faults, seats=4) as supervisor:
        supervisor.submit(byte_prompts([f"row {i}" for i in range(12)]))
        supervisor.finish()

        with pytest.raises(errors.EngineDied, match="out of memory: lower"):
            collect(supervisor)


@pytest.mark.slow
def test_engine_that_is_never_ready_is_ended_in_time(tmp_path: Path) -> None:
    engine = EngineConfig.model_validate({"name": "echo", "start_s": 600})
    supervisor = Supervisor(engine, log=tmp_path / "engine.log", care=Care(start_s=0.5))

    with pytest.raises(errors.NeverReady, match=r"run\.start_s"):
        supervisor.start()

    assert supervisor._process is None
    supervisor.close()


@pytest.mark.slow
def test_start_is_given_up_when_the_run_is_stopped(tmp_path: Path) -> None:
    engine = EngineConfig.model_validate({"name": "echo", "start_s": 600})
    stop = threading.Event()
    supervisor = Supervisor(
        engine, log=tmp_path / "engine.log", care=Care(is_stopping=stop.is_set)
    )
    threading.Timer(0.3, stop.set).start()

    with pytest.raises(errors.EngineDied, match="stopped"):
        supervisor.start()
    supervisor.close()


def test_engine_is_started_anew_after_so_many_rows(tmp_path: Path) -> None:
    log, told = tmp_path / "starts", list[str]()
    care = Care(recycle_rows=100, tell=told.append)
    with running(tmp_path, care, log=str(log)) as supervisor:
        first = child_pid(supervisor)
        for start in range(0, 300, 50):
            texts = [f"row {i}" for i in range(start, start + 50)]
            supervisor.submit(byte_prompts(texts, first_key=start))
        supervisor.finish()
        outcomes = collect(supervisor)

        assert 0 == supervisor.deaths
    assert list(range(300)) == sorted(outcome.key for outcome in outcomes)
    assert 300 == log.read_bytes().count(b"\n")
    assert 1 <= len(told) <= 3
    assert "run.recycle_rows" in told[0]
    assert [] == list(orphans.members(first))


@pytest.mark.slow
def test_engine_that_grows_is_started_anew(tmp_path: Path) -> None:
    told: list[str] = []
    with running(tmp_path, Care(recycle_gib=1e-9, tell=told.append)) as supervisor:
        recycling = supervisor._recycling
        recycling._first_bytes = 1
        supervisor.submit(byte_prompts(["a", "b"]))
        supervisor.finish()
        outcomes = collect(supervisor)

    assert 2 == len(outcomes)
    assert "it grew by" in told[0]


def test_drain_drops_what_was_not_begun_and_ends(tmp_path: Path) -> None:
    log = tmp_path / "starts"
    with running(tmp_path, log=str(log), seats=4, delay_s=0.3) as supervisor:
        for key in range(40):
            supervisor.submit(byte_prompts(["row"], first_key=key))
        wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 4)
        supervisor.drain()
        outcomes = collect(supervisor)

    begun = set(map(int, log.read_bytes().split()))
    assert begun == {outcome.key for outcome in outcomes}
    assert len(begun) < 40
