"""Negative controls: the campaign fails on builds without tail trim, without fencing, without the commit list.

The faults are those that the campaign draws anyway, in the lane where that safeguard is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.campaign import run_episode
from tests.chaos.schedule import Lane, draw_episode
from tests.kill.left import Broken
from tests.kill.mutants import MUTANTS, Mutant, mutated

pytestmark = pytest.mark.mutants
SEED = 11
MOST_EPISODES = 12
LANES: dict[str, Lane] = {
    "torn tail is read": "alone",
    "torn line counts": "alone",
    "no fence": "shared",
    "no commit list": "shared",
    "done rows are asked again": "alone",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_campaign_notices(tmp_path: Path, mutant: Mutant) -> None:
    source = mutated(tmp_path / "src", mutant)
    noticed, number = "", 0
    while not noticed and number < MOST_EPISODES:
        episode = draw_episode(SEED, number, LANES[mutant.name])
        try:
            run_episode(episode, tmp_path / str(number), source=source)
        except Broken as broken:
            noticed = str(broken)
            # The same faults do no harm to what is not changed.
            run_episode(episode, tmp_path / "whole")
        number += 1

    assert noticed, f"{MOST_EPISODES} episodes passed although: {mutant.what}"
    sys.stdout.write(f"noticed at episode {number}: {noticed}\n")
