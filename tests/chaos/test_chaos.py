"""Some 50 faults of all kinds over small jobs: no row is lost, none doubled, little is asked again.

A thousand are in benchmarks/RESULTS.md; `python -m tests.chaos.campaign` makes more.
"""

from __future__ import annotations

import sys

import pytest

from tests.chaos.campaign import campaign, table
from tests.chaos.schedule import Lane

pytestmark = pytest.mark.slow
SEED = 3
FAULTS: dict[Lane, int] = {
    "alone": 14,
    "replicas": 6,
    "scripted": 4,
    "shared": 6,
    "small disk": 5,
    "store": 12,
    "aimed at store": 12,
}
"""How many are to be seen in each lane: 59 in all."""


@pytest.mark.parametrize("lane", FAULTS)
def test_rows_come_out_once_and_right_whatever_strikes(lane: Lane) -> None:
    lines = list(campaign(seed=SEED, faults=FAULTS[lane], lanes=[lane]))
    sys.stdout.write(table(lines))

    broken = [line for line in lines if "broken" in line]
    assert not broken, broken
    skipped = [line["skipped"] for line in lines if "skipped" in line]
    if skipped:
        pytest.skip(skipped[0])
    assert sum(sum(line["observed"].values()) for line in lines) >= FAULTS[lane]
