"""kill -9 at random moments of the parent and of the engine: nothing lost, nothing doubled, little repeated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.trials import Toll, trial

FEW = int(os.environ.get("ROWMILL_KILL_TRIALS", "8"))
"""Trials of the usual set: about 14 kills; CI asks for the slow set too. ROWMILL_KILL_TRIALS asks for more, or less."""
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
