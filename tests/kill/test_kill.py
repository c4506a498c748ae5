"""kill -9 at random moments of the parent and of the engine: nothing lost, nothing doubled, little repeated."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.small_job import Kind, draw_job
from tests.kill.trials import Toll, engine_killed, parent_killed, trial

FEW = int(os.environ.get("ROWMILL_KILL_TRIALS", "3"))
"""Trials of the usual set: about 5 kills; CI asks for the slow set too. ROWMILL_KILL_TRIALS asks for more, or less."""
MANY = 110
"""About 200 kills, with the slow ones."""


@pytest.fixture(scope="module")
def tolls() -> Iterator[list[Toll]]:
    """What the trials of this module cost; that enough of them struck is seen at the end."""
    tolls: list[Toll] = []
    yield tolls
    kills = sum(toll.kills for toll in tolls)
    assert kills >= len(tolls), f"only {kills} kills came in time in {len(tolls)} trials"


NUMBERS = [*range(FEW), *(pytest.param(n, marks=pytest.mark.slow) for n in range(FEW, MANY))]


@pytest.mark.parametrize("number", NUMBERS)
def test_each_row_is_there_once_whatever_is_killed(
    tmp_path: Path, tolls: list[Toll], number: int
) -> None:
    toll = trial(number, tmp_path / "job")

    tolls.append(toll)
    assert toll.repeated <= toll.allowed


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_each_row_of_a_sorted_input_is_there_once(
    tmp_path: Path, kind: Kind, number: int
) -> None:
    rng = random.Random(f"lots {kind} {number}")
    settings = {"plan.sort": "input", "output.format": "jsonl"}
    job = draw_job(rng, tmp_path / "job", settings=settings, kind=kind)
    toll = engine_killed(rng, job) if number % 3 else parent_killed(rng, job)

    assert toll.repeated <= toll.allowed
    assert (job.out / "plan/lots.json").exists()
    assert not list((job.out / "lots").iterdir())
