"""Several workers on one run: stopped and woken, killed, or at peace, each row ends up in the results once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kill.small_job import SmallJob, draw_job
from tests.kill.trials import shared, zombie

QUICK_LEASE = {"run.lease_s": 0.5, "engine.seats": 4, "engine.delay_s": 0.008}
SLOW_ROWS = {"engine.delay_s": 0.1, "engine.seats": 4}
"""One worker alone needs longer for the rows than another needs to start, on a busy machine too."""
SMALL_TASKS = {"run.task_rows": 20, "plan.window_rows": 8, "validate.first_rows": 20}
"""A worker claims what it reads ahead: so that it leaves something to another, it must read little."""

slow = pytest.mark.slow


def numbers(few: int, many: int) -> list[object]:
    return [*range(few), *(pytest.param(n, marks=slow) for n in range(few, many))]


def drawn(
    tmp_path: Path, name: str, number: int, **settings: object
) -> tuple[random.Random, SmallJob]:
    rng = random.Random(f"{name} {number}")
    return rng, draw_job(rng, tmp_path / "job", settings={**QUICK_LEASE, **settings})


@pytest.mark.parametrize("number", numbers(1, 24))
def test_a_worker_that_wakes_after_its_tasks_were_taken_over_doubles_nothing(
    tmp_path: Path, number: int
) -> None:
    rng, job = drawn(tmp_path, "zombie", number)

    zombie(rng, job, after_rows=number % 2)


@pytest.mark.parametrize("number", numbers(0, 4))
def test_two_workers_share_a_run_and_both_commit_tasks(tmp_path: Path, number: int) -> None:
    rng, job = drawn(tmp_path, "shared", number, **SLOW_ROWS, **SMALL_TASKS)

    commits = shared(rng, job)

    assert all(commits), commits
    assert sum(commits) == job.num_tasks


@pytest.mark.parametrize("number", numbers(1, 12))
def test_of_two_workers_either_may_be_killed(tmp_path: Path, number: int) -> None:
    rng, job = drawn(tmp_path, "survivor", number)

    shared(rng, job, kill=number % 2)


@slow
@pytest.mark.parametrize("number", range(6))
def test_of_two_workers_of_a_sorted_input_either_may_be_killed(
    tmp_path: Path, number: int
) -> None:
    rng, job = drawn(tmp_path, "sorted survivor", number, **{"plan.sort": "input"})

    shared(rng, job, kill=number % 2)
