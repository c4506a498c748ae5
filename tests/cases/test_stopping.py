"""Told to end, or better ended: the run says why, exits in time, and what it repeats later is what was in seats."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowmill.config import Job
from rowmill.engines.orphans import strays
from rowmill.executors import worker
from rowmill.executors.local import run
from rowmill.executors.stopping import StoppedNow
from rowmill.flow import fill
from tests.cases.command import (
    OK,
    REFUSED,
    STOPPED,
    check_whole,
    command_line,
    environment,
    exported,
    job,
    kill,
    results,
    rowmill,
    snapshot,
    start,
)

INTERRUPTED, DRAINED = 130, 143
GRACE_S = 30.0
SEATS = 8
ROWS = 400


@pytest.fixture(autouse=True)
def _no_engine_is_left() -> Iterator[None]:
    before = set(strays())
    yield
    assert set(strays()) <= before


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(f'{{"id": {i}, "prompt": "row {i}"}}\n' for i in range(ROWS)))
    return file


class Slow:
    """A run whose rows take `delay_s` each, and a count of how often each was begun."""

    def __init__(self, tmp_path: Path, source: Path, **sets: object) -> None:
        self.out, self.log, self._begun = tmp_path / "out", tmp_path / "log", tmp_path / "begun"
        self.sets = {"engine.seats": SEATS, "engine.log": str(self._begun), **sets}
        self._source = source
        self.process = start(self._job(), self.log)

    def _job(self, **changes: object) -> list[str]:
        sets = {**self.sets, **changes}
        return job(self._source, self.out, "--engine", "echo", sets=sets)

    def begun(self) -> Counter[int]:
        """How often each row was begun."""
        if not self._begun.exists():
            return Counter()
        return Counter(map(int, self._begun.read_bytes().split()))

    def until_begun(self, rows: int) -> None:
        deadline = time.monotonic() + 60
        while self.begun().total() < rows:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self, within_s: float) -> int:
        try:
            return self.process.wait(within_s)
        finally:
            kill(self.process)

    def resume(self, **changes: object) -> None:
        done = rowmill("run", self._job(**{"engine.delay_s": 0, **changes}))
        check_whole(done, self.out, ROWS)


def test_sigterm_waits_for_rows_in_seats_and_repeats_none(tmp_path: Path, source: Path) -> None:
    slow = Slow(tmp_path, source, **{"engine.delay_s": 0.3})
    slow.until_begun(3 * SEATS)
    slow.process.send_signal(signal.SIGTERM)

    assert DRAINED == slow.end(GRACE_S), slow.log.read_text()
    begun = slow.begun()
    assert set(begun.values()) == {1}
    assert begun.total() < ROWS
    assert begun.total() == len(exported(slow.out, tmp_path / "export.jsonl"))
    slow.resume()
    assert set(slow.begun().values()) == {1}


@pytest.mark.slow
def test_sigterm_ends_in_time_and_only_rows_in_seats_repeat(
    tmp_path: Path, source: Path
) -> None:
    """Rows take longer than the drain may: 30 s are left between SIGTERM and SIGKILL."""
    slow = Slow(tmp_path, source, **{"engine.delay_s": 0.2, "run.drain_s": 20})
    slow.until_begun(3 * SEATS)
    kill(slow.process)
    slow.sets["engine.delay_s"] = 600
    slow.process = start(slow._job(), slow.log)
    before = slow.begun().total()
    slow.until_begun(before + SEATS)
    slow.process.send_signal(signal.SIGTERM)
    at = time.monotonic()

    assert DRAINED == slow.end(GRACE_S), slow.log.read_text()
    assert 20 <= time.monotonic() - at < GRACE_S
    in_seats = set(slow.begun()) - {r["id"] for r in exported(slow.out, tmp_path / "e.jsonl")}
    slow.resume()
    repeated = {row for row, times in slow.begun().items() if times > 1}
    assert len(in_seats) == SEATS
    assert in_seats <= repeated
    assert len(repeated) <= 2 * SEATS  # those of the kill, and those of the drain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (signal.SIGTERM, signal.SIGTERM, DRAINED),
        (signal.SIGTERM, signal.SIGINT, INTERRUPTED),
        (signal.SIGINT, signal.SIGINT, INTERRUPTED),
    ],
)
def test_a_second_signal_ends_at_once(
    tmp_path: Path, source: Path, first: int, second: int, code: int
) -> None:
    slow = Slow(tmp_path, source, **{"engine.delay_s": 600, "run.drain_s": 600})
    slow.until_begun(SEATS)
    slow.process.send_signal(first)
    deadline = time.monotonic() + 60
    while b"stopping" not in slow.log.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    slow.process.send_signal(second)

    assert code == slow.end(GRACE_S)
    slow.resume()


@pytest.mark.slow
def test_sigterm_while_the_engine_starts_ends_at_once(tmp_path: Path, source: Path) -> None:
    slow = Slow(tmp_path, source, **{"engine.start_s": 600})
    deadline = time.monotonic() + 60
    while not list((slow.out / "engines").glob("*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    slow.process.send_signal(signal.SIGTERM)

    assert DRAINED == slow.end(GRACE_S), slow.log.read_text()
    assert [] == list((slow.out / "engines").glob("*.json"))
    slow.resume(**{"engine.start_s": 0})


@pytest.mark.slow
def test_sigterm_while_standard_input_is_read_ends_at_once(tmp_path: Path) -> None:
    arguments = ["-", "-o", str(tmp_path / "out"), "--engine", "echo"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command_line("run", arguments),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment(),
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(b'{"prompt": "a"}\n')
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not (tmp_path / "out").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    try:
        assert DRAINED == process.wait(GRACE_S), (tmp_path / "log").read_text()
    finally:
        kill(process)
        process.stdin.close()


@pytest.mark.slow
def test_an_engine_that_is_never_ready_ends_the_run(tmp_path: Path, source: Path) -> None:
    sets = {"engine.start_s": 600, "run.start_s": 1}
    done = rowmill("run", job(source, tmp_path / "out", "--engine", "echo", sets=sets))

    assert STOPPED == done.code
    assert "`run.start_s` = 1 s" in done.stderr


@pytest.mark.slow
def test_money_is_counted_over_starts_and_ends_the_run(tmp_path: Path, source: Path) -> None:
    """A price of 3,600 an hour is 1 a second."""
    out = tmp_path / "out"
    sets = {"engine.delay_s": 0.2, "engine.seats": 4, "run.gpu_hour_price": 3600}
    first = rowmill(
        "run", job(source, out, "--engine", "echo", sets={**sets, "run.max_cost": 3})
    )
    again = rowmill(
        "run", job(source, out, "--engine", "echo", sets={**sets, "run.max_cost": 3})
    )
    more = {"run.max_cost": 1000, "engine.delay_s": 0}
    done = rowmill("run", job(source, out, "--engine", "echo", sets={**sets, **more}))

    assert (STOPPED, STOPPED, OK) == (first.code, again.code, done.code), done.stderr
    assert "`run.max_cost` = 3 reached" in first.told["stopped"]
    assert 0 < first.told["ok"] < ROWS
    assert again.told["ok"] - first.told["ok"] <= 8
    assert first.told["cost"] >= 3
    assert done.told["cost"] > first.told["cost"]
    assert REFUSED == rowmill("check", [str(source), "--set", "run.max_cost=3"]).code


@pytest.mark.slow
def test_a_disk_that_fills_ends_the_run(tmp_path: Path, source: Path) -> None:
    sets = {"engine.delay_s": 0.2, "engine.seats": 4, "run.min_free_gib": 10**6}
    done = rowmill("run", job(source, tmp_path / "out", "--engine", "echo", sets=sets))

    assert STOPPED == done.code, done.stderr
    assert "`run.min_free_gib`" in done.told["stopped"]
    assert len(exported(tmp_path / "out", tmp_path / "e.jsonl")) == done.told["ok"] < ROWS


@pytest.mark.slow
def test_steps_down_are_printed_kept_and_taken_at_once_by_a_resume(
    tmp_path: Path, source: Path
) -> None:
    out, fault = tmp_path / "out", '[{contains = "", action = "oom", above_seats = 4}]'
    sets = {"engine.delay_s": 0.2, "engine.seats": 8, "engine.faults": fault}
    capped = {**sets, "run.max_hours": 4 / 3600}
    first = rowmill("run", job(source, out, "--engine", "echo", sets=capped))
    done = rowmill(
        "run", job(source, out, "--engine", "echo", sets={**sets, "engine.delay_s": 0.01})
    )

    assert STOPPED == first.code, first.stderr
    assert "out of memory; goes on with `engine.seats` = 4 (was 8)" in first.stderr
    assert OK == done.code
    assert "came down to `engine.seats` = 4" in done.stderr
    assert "goes on with" not in done.stderr
    assert ["seats"] == [
        step["setting"] for step in json.loads((out / "plan/engine-steps.json").read_bytes())
    ]
    events = b"".join(path.read_bytes() for path in (out / "events").iterdir())
    assert b"goes on with `engine.seats` = 4" in events


JUMPING = """
import time
_real, _calls = time.time, [0]
def _jumping():
    _calls[0] += 1
    return _real() + (10**8 if _calls[0] % 3 else -10**8)
time.time = _jumping
time.time_ns = lambda: int(_jumping() * 1e9)
"""


@pytest.mark.slow
def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, source: Path) -> None:
    """Years forth and back at each look at the wall clock, in every process of the run."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(JUMPING)
    paths = os.pathsep.join([str(tmp_path / "site"), environment()["PYTHONPATH"]])
    sets = {"engine.delay_s": 0.01, "engine.seats": 32, "run.task_rows": 50, "run.lease_s": 2}
    arguments = job(source, tmp_path / "out", "--engine", "echo", sets=sets)
    done = rowmill("run", arguments, changes={"PYTHONPATH": paths})

    assert OK == done.code, done.stderr
    assert list(range(ROWS)) == [record["id"] for record in results(tmp_path / "out")]
    assert 0 < done.told["seconds"] < 600


def test_a_stop_while_the_first_rows_are_checked_leaves_nothing(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may refuse the job: what is not checked is no run to go on with."""
    out = tmp_path / "out"
    tree = {"source": str(source), "output": {"path": str(out)}, "engine": {"name": "echo"}}
    strike(monkeypatch, lambda: True)
    with pytest.raises(StoppedNow) as stopped:
        run(Job.model_validate(tree))

    assert INTERRUPTED == stopped.value.exit_code
    assert not out.exists(), sorted(out.rglob("*"))


def test_an_append_that_is_stopped_before_its_files_join_leaves_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, files = tmp_path / "out", [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for file in files:
        file.write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 1500))
    tree = {"output": {"path": str(out)}, "engine": {"name": "echo"}}
    first, more = (Job.model_validate({**tree, "source": str(file)}) for file in files)
    run(first)
    there = left(out)

    with monkeypatch.context() as patched:
        strike(patched, (out / "leases/0000002.json").exists)
        with pytest.raises(StoppedNow):
            run(more, append=True)

    assert left(out) == there
    (out / "spool/00001.zst").write_bytes(b"of an append that was killed")
    run(first)
    assert left(out) == there
    assert run(more, append=True).asked == 1500


def strike(monkeypatch: pytest.MonkeyPatch, is_time: Callable[[], bool]) -> None:
    """Ctrl-C once a worker reads its first rows, at the time that is said."""

    def struck(*arguments: Any, **named: Any) -> None:
        fill(*arguments, **named)
        if named["name"] == "rowmill-read":
            deadline = time.monotonic() + 60
            while not is_time():
                assert time.monotonic() < deadline
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(worker, "fill", struck)


def left(out: Path) -> set[str]:
    """Files of a run, but those that say who owns it and how it stood."""
    passing = ("leases/owner", "leases/workers", "events/", "engines/")
    return {name for name in snapshot(out) if not name.startswith(passing)}
