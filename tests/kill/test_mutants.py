"""Negative controls: the trials notice when what they guard is taken away.

Each control is a copy of the source with a few lines changed; the same trials must then find a broken promise.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kill.left import Broken
from tests.kill.moments import draw_among_rows, draw_at_commit
from tests.kill.small_job import SOURCE, SmallJob, draw_job
from tests.kill.trials import parent_killed, undisturbed, zombie

pytestmark = pytest.mark.mutants
MOST_TRIALS = 12
SEATS = {"engine.seats": 4, "engine.delay_s": 0.003}


@dataclass(frozen=True)
class Change:
    """One place of the source."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """What is taken away, and the trials that must notice."""

    name: str
    what: str
    changes: tuple[Change, ...]
    trial: Callable[[random.Random, SmallJob], object]


def killed_among_rows(rng: random.Random, job: SmallJob) -> object:
    return parent_killed(rng, job, draw=draw_among_rows, kills=2)


def killed_at_commits(rng: random.Random, job: SmallJob) -> object:
    return parent_killed(rng, job, draw=draw_at_commit, kills=3)


def woken_among_rows(rng: random.Random, job: SmallJob) -> object:
    return zombie(rng, job, draw=draw_among_rows)


MUTANTS = [
    Mutant(
        "torn tail is read",
        "A resume decodes the last line of a segment even where it has no end.",
        (
            Change(
                "write/segments.py",
                'while newline := content.find(b"\\n", start) + 1:',
                'while newline := (content + b"\\n").find(b"\\n", start) + 1:\n'
                "        if start >= len(content):\n"
                "            break",
            ),
            Change(
                "write/segments.py",
                "except msgspec.DecodeError:\n            break",
                "except msgspec.DecodeError:\n            raise",
            ),
        ),
        killed_among_rows,
    ),
    Mutant(
        "torn line counts",
        "A resume takes a line that was torn for the outcome of its row.",
        (
            Change(
                "write/segments.py",
                'while newline := content.find(b"\\n", start) + 1:',
                'while newline := (content + b"\\n").find(b"\\n", start) + 1:\n'
                "        if start >= len(content):\n"
                "            break",
            ),
            Change(
                "write/segments.py",
                "except msgspec.DecodeError:\n            break",
                "except msgspec.DecodeError:\n"
                '            digits = content[start:newline].strip(b"\\0\\n")[7:].split(b",")[0]\n'
                "            outcome = Outcome(int(digits) if digits.isdigit() else 0, 'ok')",
            ),
        ),
        killed_among_rows,
    ),
    Mutant(
        "no fence",
        "Every holder of a task writes into the same file.",
        (
            Change(
                "rundir.py",
                "{epoch:04d}-{number:05d}",
                "{min(epoch, 1):04d}-{number:05d}",
            ),
            Change(
                "storage/files.py",
                "os.O_CREAT | os.O_EXCL | os.O_APPEND",
                "os.O_CREAT | os.O_APPEND",
            ),
        ),
        woken_among_rows,
    ),
    Mutant(
        "no commit list",
        "Publishing reads every segment of a task, named by its commit or not.",
        (
            Change(
                "join/outcomes.py",
                "for ref in commit.segments:\n        for lines in read_lines_of(storage, ref):",
                "for name in storage.list(f'segments/{commit.task:07d}/'):\n"
                "        for lines in [storage.read(name).split(b'\\n')[:-1]]:",
            ),
        ),
        killed_at_commits,
    ),
    Mutant(
        "done rows are asked again",
        "A resume reads what is done, and asks it all the same.",
        (
            Change(
                "pipeline.py",
                "if not done:\n            return chunk",
                "if True:\n            return chunk",
            ),
        ),
        killed_among_rows,
    ),
]


def mutated(folder: Path, mutant: Mutant) -> Path:
    """A copy of the source with the changes made; fails where one does not fit exactly once."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for change in mutant.changes:
        file = folder / "rowmill" / change.file
        text = file.read_text("utf-8")
        assert text.count(change.old) == 1, f"{change.file} no longer holds {change.old!r}"
        file.write_text(text.replace(change.old, change.new), "utf-8")
    return folder


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_trials_notice(tmp_path: Path, mutant: Mutant) -> None:
    source = mutated(tmp_path / "src", mutant)
    # Whatever is taken away is missed by the struck alone: else a slip in the change would do.
    undisturbed(draw_job(random.Random(mutant.name), tmp_path / "calm", source=source))
    lease = {"run.lease_s": 0.4} if mutant.trial is woken_among_rows else {}
    noticed = ""
    for number in range(MOST_TRIALS):
        rng = random.Random(f"mutant {number}")
        folder = tmp_path / str(number)
        # Equal rows come out of order: their segments are written anew when they are committed.
        job = draw_job(rng, folder, source=source, settings=SEATS | lease, has_equals=True)
        try:
            mutant.trial(rng, job)
        except Broken as broken:
            noticed = str(broken)
            break

    assert noticed, f"{MOST_TRIALS} trials passed although: {mutant.what}"
    sys.stdout.write(f"noticed at trial {number + 1}: {noticed}\n")
