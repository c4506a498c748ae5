"""kill -9 while files of other kinds are unpacked, answered, published and joined: nothing lost, nothing doubled."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kill.moments import draw_of_files
from tests.kill.small_job import Kind, draw_job
from tests.kill.trials import appended, parent_killed

PARQUET = {"output.format": "parquet", "output.part_bytes": 2**16}
"""So that a run has several parts."""
LINES = {"output.format": "jsonl", "output.compression": "zstd", "output.part_bytes": 2**16}
WAYS: list[tuple[Kind, dict[str, object]]] = [
    ("jsonl.gz", PARQUET),
    ("parquet", PARQUET),
    ("jsonl.gz", {}),
    ("parquet", {}),
    ("jsonl.gz", LINES),
]
"""What the input is, and how results are written."""
FEW, MANY = 1, 20


def numbers(few: int, many: int) -> list[object]:
    return [*range(few), *(pytest.param(n, marks=pytest.mark.slow) for n in range(few, many))]


@pytest.mark.parametrize("number", numbers(FEW, MANY))
def test_each_row_is_there_once_whatever_the_files_are(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"formats {number}")
    kind, settings = WAYS[number % len(WAYS)]
    job = draw_job(rng, tmp_path / "job", settings=settings, kind=kind)

    toll = parent_killed(rng, job, draw=draw_of_files)

    assert toll.repeated <= toll.allowed


@pytest.mark.parametrize("number", numbers(1, 10))
def test_each_row_is_there_once_when_files_join(tmp_path: Path, number: int) -> None:
    rng = random.Random(f"append {number}")
    kind, settings = WAYS[number % len(WAYS)]
    job = draw_job(rng, tmp_path / "job", settings=settings, kind=kind)

    toll = appended(rng, job)

    assert toll.repeated <= toll.allowed
