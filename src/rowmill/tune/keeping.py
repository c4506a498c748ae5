"""Outcomes of trials -> the tasks of the run they belong to, open as a run that was stopped leaves them.

Promises: rows that were answered lie under their tasks' leases, in segments like any others; who runs the job passes over them.
Until it is settled which settings the run has, they are held and not written.
Knows nothing of: engines, settings.
Memory: outcomes that are held; the open tasks' logs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np

from rowmill.executors.lots import lot_rows
from rowmill.executors.opening import Opened
from rowmill.journal import TaskLog, paid_of, read_commits
from rowmill.leases import Leases
from rowmill.opentasks import OpenTasks
from rowmill.outcomes import FAILED, Outcomes, join
from rowmill.pipeline import TaskRows
from rowmill.read import BadLine
from rowmill.rows import AnyRow
from rowmill.storage import Storage
from rowmill.tune.sample import GOLDEN

MOST_ROWS = 100_000
"""Rows that are looked at: more tell no more of a job."""

Answers = tuple[tuple[str, str], ...]
"""Settings that change answers, where they differ from the job's own: what outcomes may lie in one run together."""


class Keeping:
    """The tasks that a sample is of. `put` may be called from any thread."""

    def __init__(self, storage: Storage, opened: Opened, leases: Leases, *, name: str) -> None:
        self._storage, self._opened, self._leases = storage, opened, leases
        self._tasks = OpenTasks(opened.places, name)
        self._chosen: Answers | None = None
        self._held: dict[Answers, list[Outcomes]] = {}
        self._lock = threading.Lock()
        commits = read_commits(storage)
        self._todo = [task for task in range(opened.cut.num_tasks) if task not in commits]
        self.done_before = sum(commit.num_rows for commit in commits.values())
        self.paid = paid_of(*(commit.paid() for commit in commits.values()))
        """For what earlier starts wrote, so far."""
        self.rows = 0
        """Kept so far."""

    def tasks(self) -> Iterator[TaskRows]:
        """Tasks spread over what is left of the input, all of them where that is little, with what is done of each.

        Whoever stops early has taken from everywhere.
        """
        number = max(1, -(-MOST_ROWS // self._opened.cut.task_rows))
        step = max(1.0, len(self._todo) / number)
        some = [self._todo[int(i * step)] for i in range(min(number, len(self._todo)))]
        spread = sorted(range(len(some)), key=lambda i: (i + 0.5) * GOLDEN % 1.0)
        for task in (some[i] for i in spread):
            epoch = self._leases.claim(task)
            if epoch is None:
                continue
            log = TaskLog(self._storage, task, epoch)
            self.paid.add(log.paid())
            self._tasks.open(log)
            done = set(log.done)
            self.done_before += len(done)
            if self._opened.places.is_lot(task):
                yield TaskRows(task, [], done, lot=self._lot(task))
            else:
                yield TaskRows(task, list(self._opened.places.task_slices(task)), done)

    def lines_left(self) -> int:
        """Lines of the tasks that are not committed."""
        return sum(self._opened.places.task_lines(task) for task in self._todo)

    def await_rows(self, lot: int, keys: list[int]) -> None:
        """Say which rows a lot has."""
        self._tasks.await_rows(lot, keys)

    def put(self, answers: Answers, outcomes: Outcomes) -> None:
        """Keep outcomes of these settings, or hold them until `begin`; those of others than were chosen are dropped."""
        with self._lock:
            if self._chosen is None:
                self._held.setdefault(answers, []).append(outcomes)
            if self._chosen != answers:
                return
        self._write(outcomes)

    def begin(self, answers: Answers) -> None:
        """The run has these settings: what is held of them is written, and what comes is."""
        with self._lock:
            held, self._held = self._held.get(answers, []), {}
            self._chosen = answers
        if held:
            self._write(join(held))

    def close(self) -> None:
        """Leave the tasks for the run, what they hold durable."""
        self._tasks.close()

    def _lot(self, task: int) -> Callable[[], Iterator[list[AnyRow | BadLine]]]:
        return lambda: lot_rows(self._storage, self._opened.places, task)

    def _write(self, outcomes: Outcomes) -> None:
        # What failed may have failed for a setting, a key or a template: the run asks it, and stops where it should.
        outcomes = outcomes.take(np.flatnonzero((outcomes.marks & FAILED) == 0).tolist())
        before = self._tasks.counts.done
        self._tasks.put(outcomes)
        self.rows += self._tasks.counts.done - before
