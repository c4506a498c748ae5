"""Engines left behind are found by their record; nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rowmill.engines import orphans

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
LEADER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {SLEEPER!r}])
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_recorded_process_is_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    orphans.record_process(tmp_path / "pid", sleeper.pid, mark="m")

    assert orphans.end_orphan(tmp_path / "pid")
    assert -9 == sleeper.wait(5)
    assert not (tmp_path / "pid").exists()


def test_another_process_with_the_same_number_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "pid"
    orphans.record_process(path, sleeper.pid, mark="m")
    entry = msgspec.json.decode(path.read_bytes(), type=orphans.EngineProcess)
    older = msgspec.structs.replace(entry, start_ticks=entry.start_ticks - 1)
    path.write_bytes(msgspec.json.encode(older))

    assert not orphans.end_orphan(path)
    assert sleeper.poll() is None


def test_record_of_another_machine_stays(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "pid"
    orphans.record_process(path, sleeper.pid, mark="m")
    entry = msgspec.json.decode(path.read_bytes(), type=orphans.EngineProcess)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, host="elsewhere")))

    assert not orphans.end_orphan(path)
    assert sleeper.poll() is None
    assert path.exists()


def test_members_left_behind_by_a_dead_leader_are_ended(tmp_path: Path) -> None:
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, orphans.MARK: "the-mark"},
    )
    orphans.record_process(tmp_path / "pid", leader.pid, mark="the-mark")
    assert leader.stdout is not None
    assert b"up\n" == leader.stdout.readline()
    leader.wait()
    leader.stdout.close()

    assert orphans.end_orphan(tmp_path / "pid")
    assert [] == list(orphans.members(leader.pid))


def test_missing_or_broken_record_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b'{"pid": 1')

    assert not orphans.end_orphan(tmp_path / "absent")
    assert not orphans.end_orphan(tmp_path / "broken")
