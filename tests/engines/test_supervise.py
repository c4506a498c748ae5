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
from rowmill.engines.supervise import Supervisor
from rowmill.rows import Outcome
from tests.engines.rows_of import byte_prompts


@contextmanager
def running(tmp_path: Path, **options: Any) -> Iterator[Supervisor]:
    engine = EngineConfig(name="echo", tokenizer="bytes", **options)
    supervisor = Supervisor(engine, log=tmp_path / "engine.log", record=tmp_path / "engine.pid")
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
