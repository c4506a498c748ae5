"""Negative controls: the trials notice when what they guard is taken away.

Each control is a copy of the source with a few lines changed; the same trials must then find a broken promise.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kill.left import Broken
from tests.kill.moments import draw_among_rows, draw_at_commit
from tests.kill.mutants import MUTANTS, Mutant, mutated
from tests.kill.small_job import SmallJob, draw_job
from tests.kill.trials import parent_killed, undisturbed, zombie

pytestmark = pytest.mark.mutants
MOST_TRIALS = 12
SEATS = {"engine.seats": 4, "engine.delay_s": 0.003}


def killed_among_rows(rng: random.Random, job: SmallJob) -> object:
    return parent_killed(rng, job, draw=draw_among_rows, kills=2)


def killed_at_commits(rng: random.Random, job: SmallJob) -> object:
    return parent_killed(rng, job, draw=draw_at_commit, kills=3)


def woken_among_rows(rng: random.Random, job: SmallJob) -> object:
    return zombie(rng, job, draw=draw_among_rows)


TRIALS: dict[str, Callable[[random.Random, SmallJob], object]] = {
    "torn tail is read": killed_among_rows,
    "torn line counts": killed_among_rows,
    "no fence": woken_among_rows,
    "no commit list": killed_at_commits,
    "done rows are asked again": killed_among_rows,
}
"""What must notice that it is taken away."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_trials_notice(tmp_path: Path, mutant: Mutant) -> None:
    source = mutated(tmp_path / "src", mutant)
    # Whatever is taken away is missed by the struck alone: else a slip in the change would do.
    undisturbed(draw_job(random.Random(mutant.name), tmp_path / "calm", source=source))
    trial = TRIALS[mutant.name]
    lease = {"run.lease_s": 0.4} if trial is woken_among_rows else {}
    noticed = ""
    for number in range(MOST_TRIALS):
        rng = random.Random(f"mutant {number}")
        folder = tmp_path / str(number)
        # Equal rows come out of order: their segments are written anew when they are committed.
        job = draw_job(rng, folder, source=source, settings=SEATS | lease, has_equals=True)
        try:
            trial(rng, job)
        except Broken as broken:
            noticed = str(broken)
            break

    assert noticed, f"{MOST_TRIALS} trials passed although: {mutant.what}"
    sys.stdout.write(f"noticed at trial {number + 1}: {noticed}\n")
