"""A loader that is killed at any moment, and begun again: every vector once, and the right one."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.load.runs import began, done, expected, job_of
from tests.load.stores import STORES, store

KILLS = 20
ROWS, TASK_ROWS = 9_000, 30
TASKS = ROWS // TASK_ROWS
PATIENCE_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def loaded(out: Path) -> int:
    """Tasks on record as loaded."""
    return len(list((out / "loads").glob("*/*.json")))


def killed(out: Path, address: str, rng: random.Random) -> bool:
    """Begin to load, and kill it while a further task is under way. Returns: whether it was still loading."""
    before = loaded(out)
    wanted = before + rng.randint(0, 2)
    loader = began("export", str(out), "--to", address, "--set", "sink.metric=dot")
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while loaded(out) <= wanted and loader.poll() is None:
            assert time.monotonic() < give_up_at
        # Anywhere within a task: between its transaction, its record and the next one.
        until = time.monotonic() + rng.uniform(0, 0.05)
        while time.monotonic() < until:
            pass
    finally:
        loader.kill()
        status = loader.wait()
    return status == -9 and loaded(out) < TASKS


@pytest.mark.parametrize("name", STORES)
def test_twenty_kills_leave_every_vector_once(name: str, tmp_path: Path) -> None:
    done("run", str(job_of(tmp_path, rows=ROWS, task_rows=TASK_ROWS)))
    out = tmp_path / "out"
    right = expected(out)
    assert len(right) == ROWS
    rng = random.Random(f"kills of {name}")
    with store(name) as there:
        address = there.address("docs")
        struck = sum(killed(out, address, rng) for _ in range(KILLS))
        to = ("export", str(out), "--to", address, "--set", "sink.metric=dot")
        done(*to)

        assert struck == KILLS
        assert there.read("docs") == right

        done(*to)
        shutil.rmtree(out / "loads")
        done(*to)

        assert there.read("docs") == right
