"""Builds of rowmill with one of its safeguards taken away: copies of the source with a few lines changed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.kill.small_job import SOURCE


@dataclass(frozen=True)
class Change:
    """One place of the source."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """What is taken away."""

    name: str
    what: str
    changes: tuple[Change, ...]


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
    ),
    Mutant(
        "done rows are asked again",
        "A resume reads what is done, and asks it all the same.",
        (
            Change(
                "pipeline.py",
                "[row for row in chunk if row.key not in done] if done else chunk",
                "chunk",
            ),
        ),
    ),
]


def mutated(folder: Path, mutant: Mutant) -> Path:
    """A copy of the source with the changes made; fails where one does not fit exactly once."""
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for change in mutant.changes:
        file = folder / "rowmill" / change.file
        text = file.read_text("utf-8")
        check_fits(change, text)
        file.write_text(text.replace(change.old, change.new), "utf-8")
    return folder


def check_fits(change: Change, text: str) -> None:
    """Fail where the source no longer holds the place, or holds it twice."""
    assert text.count(change.old) == 1, f"{change.file} no longer holds {change.old!r} once"
