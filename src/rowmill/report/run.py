"""Output -> a view of the run in it: commits, open tasks, places. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import msgspec

from rowmill import rundir
from rowmill.errors import BadSource, ConfigError
from rowmill.join.outcomes import MERGED_ROWS, OutcomeLines, has_line, merged_with
from rowmill.journal import Commit, Counts, read_commits, segments_of
from rowmill.outcomes import key_of, pack
from rowmill.read import changed
from rowmill.record import Cut, Places, Record, read_run
from rowmill.rows import Outcome, pack_key
from rowmill.storage import NotThere, Storage, open_storage
from rowmill.write.segments import RowIndex, read_outcomes, scan


class View(msgspec.Struct, frozen=True):
    """A run as it lies at its output now."""

    storage: Storage
    record: Record
    cut: Cut
    places: Places
    commits: dict[int, Commit]

    def open_outcomes(self, task: int) -> list[Outcome]:
        """Outcomes of a task that is not committed, as far as they are written."""
        index, done = RowIndex(), set[int]()
        outcomes: list[Outcome] = []
        for i, name in enumerate(segments_of(self.storage, task)):
            try:
                outcomes += scan(self.storage, name, index, segment=i, done=done)[1]
            except NotThere:
                # Committed between the listing and now: its segments were replaced.
                continue
        return outcomes

    def task_outcomes(self, task: int) -> Iterator[list[Outcome]]:
        """Outcomes of any task, in key order where it is committed."""
        commit = self.commits.get(task)
        if commit is None:
            yield self.open_outcomes(task)
            return
        for ref in commit.segments:
            yield from read_outcomes(self.storage, ref)

    def task_lines(self, task: int) -> Iterator[list[bytes]]:
        """The same as lines of a segment, without their line feeds."""
        for outcomes in self.task_outcomes(task):
            yield pack(outcomes).lines.split(b"\n")[:-1]

    def range_lines(self) -> Callable[[int], Iterator[list[bytes]]]:
        """Lines of the rows in the range of positions of each task, asked for from the first task to the last.

        A lot has rows of all ranges: lots are merged, those that are not committed sorted before.
        """
        lots = self.cut.lots
        if lots is None:
            return self.task_lines
        commits = [c for task, c in self.commits.items() if task < lots.number and c.num_rows]
        opened = [task for task in self.open_tasks() if task < lots.number]
        sorted_ = [iter([self._open_lines(task)]) for task in opened]
        whole = OutcomeLines(merged_with(self.storage, commits, sorted_))
        return lambda task: (
            self._lines_of_range(whole, task)
            if self.places.is_lot(task)
            else self.task_lines(task)
        )

    def _open_lines(self, task: int) -> list[bytes]:
        return sorted(chain.from_iterable(self.task_lines(task)), key=key_of)

    def _lines_of_range(self, whole: OutcomeLines, task: int) -> Iterator[list[bytes]]:
        *_, (shard, _, stop) = self.places.task_slices(task)
        end = pack_key(shard.index, stop)
        while lines := whole.take_below(end, MERGED_ROWS):
            yield lines

    def lot_of(self, key: int) -> int | None:
        """The lot that has an outcome of a row; None where none has."""
        for task, commit in self.commits.items():
            if commit.first_key <= key <= commit.last_key and has_line(
                self.storage, commit, key
            ):
                return task
        for task in self.open_tasks():
            if any(outcome.key == key for outcome in self.open_outcomes(task)):
                return task
        return None

    def check_input(self) -> None:
        """See that the rows which are read are those that were answered.

        Raises: BadSource naming every file that is gone or another; of what was unpacked, that is what is read.
        """
        files = [file for file in self.record.files if not file.spool]
        differing = changed(files)
        if differing:
            each = ", ".join(f"`{name}` ({what})" for name, what in differing.items())
            reason = (
                f"the input is not what the run began with: {each}; put it back, or where it"
                " was moved, give the command of the run with its new place"
            )
            raise BadSource(reason=reason)

    def open_tasks(self) -> list[int]:
        """Tasks with outcomes that are not committed."""
        found = (rundir.parse_segment(name) for name in self.storage.list(rundir.SEGMENTS))
        return sorted({f.task for f in found if f is not None} - self.commits.keys())

    def counts(self) -> Counts:
        """Sums over all outcomes so far."""
        counts = Counts()
        for commit in self.commits.values():
            counts.merge(commit.counts)
        for task in self.open_tasks():
            counts.add(pack(self.open_outcomes(task)))
        return counts


def run_of(output: str) -> str:
    """The folder of the run that an output names: itself, or the one beside a batch's file."""
    beside = Path(f"{output}{rundir.BESIDE}")
    is_beside = not Path(output).is_dir() and (beside / rundir.RUN).is_file()
    return str(beside) if is_beside else output


def open_view(output: str) -> View:
    """Look at the run in `output`, or in the folder beside it where it is a batch's file.

    Raises:
        ConfigError: there is none.
    """
    if Path(output).is_file() and run_of(output) == output:
        reason = f"`{output}` is a file, and no run lies beside it; name the folder that `rowmill run -o` was given"
        raise ConfigError(reason=reason)
    storage = open_storage(run_of(output))
    found = read_run(storage)
    if found is None:
        reason = f"`{output}` holds no run; name the folder that `rowmill run -o` was given"
        raise ConfigError(reason=reason)
    record, cut = found
    return View(storage, record, cut, Places(cut), read_commits(storage))
