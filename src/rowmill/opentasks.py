"""Outcomes -> the tasks they belong to: written, copied to equal rows, counted, committed when a task is whole.

Promises: a task is committed once every row of it has an outcome and no sooner; copies are written beside
the row they are copied from; a transient failure is not copied: the equal rows are asked themselves.
Knows nothing of: how rows were read or asked.
Memory: the open tasks' logs, and the copies that wait for their leader.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.errors import GaveUp, KilledEngine
from rowmill.events import TaskBegan, TaskEnded
from rowmill.journal import Counts, TaskLog
from rowmill.outcomes import Outcomes, join, pack
from rowmill.plan import Plan
from rowmill.record import Places
from rowmill.rows import Outcome, Prompts

NOT_COPIED = (GaveUp.kind, KilledEngine.kind)


class OpenTasks:
    """The open tasks of one worker. `put` may be called from any thread."""

    def __init__(self, places: Places, worker: str) -> None:
        self._places, self._worker = places, worker
        self._logs: dict[int, TaskLog] = {}
        self._expected: dict[int, int] = {}
        self._copies: dict[int, tuple[Plan, list[int]]] = {}
        self._lot_of: dict[int, int] = {}
        """Task of each row of the open tasks that are lots, as far as they are handed over."""
        self._lock = threading.Lock()
        self.counts = Counts()
        """Of this process's own outcomes."""
        self.again: deque[Prompts] = deque()
        """Rows to ask after all, because the row they were to copy failed in passing."""
        self.num_waiting_copies = 0
        self.happened: deque[TaskBegan | TaskEnded] = deque()
        """To be told."""
        self._begun: dict[int, tuple[float, Counts]] = {}
        """When a task was opened, and what was done of it."""

    def open(self, log: TaskLog) -> None:
        """Take outcomes of a task from now on."""
        with self._lock:
            self._logs[log.task] = log
        self._begun[log.task] = time.monotonic(), msgspec.structs.replace(log.counts)
        self.happened.append(TaskBegan(task=log.task, resumed=log.counts.done))

    def expect(self, task: int, num_rows: int) -> None:
        """Say how many rows a task has, once it is read to its end."""
        with self._lock:
            self._expected[task] = num_rows

    def await_rows(self, lot: int, keys: list[int]) -> None:
        """Say which rows a lot has: their keys do not tell their task."""
        with self._lock:
            self._lot_of.update(dict.fromkeys(keys, lot))

    def await_copies(self, plan: Plan) -> None:
        """Have the answers of a plan's leaders copied to their equals."""
        if not plan.copies:
            return
        index = {key: i for i, key in enumerate(plan.prompts.keys)}
        with self._lock:
            for leader, keys in plan.copies.items():
                self._copies[leader] = (plan, [index[key] for key in keys])
                self.num_waiting_copies += len(keys)

    def open_counts(self) -> tuple[int, int, int]:
        """(open tasks, ok rows in them, failed ones), with what earlier holders wrote of them."""
        counts = [log.counts for log in self._open_logs()]
        return len(counts), sum(c.ok for c in counts), sum(c.failed for c in counts)

    def put(self, outcomes: Outcomes) -> None:
        """Write outcomes to their tasks' logs."""
        if self._copies:
            copies = self._copies_of(outcomes)
            outcomes = join([outcomes, pack(copies)]) if copies else outcomes
        for task, group in self._by_task(outcomes):
            new = self._logs[task].put(group)
            with self._lock:
                self.counts.add(new)

    def whole_tasks(self) -> list[int]:
        """Tasks that have an outcome for every row."""
        with self._lock:
            return [t for t, n in self._expected.items() if len(self._logs[t].done) >= n]

    def commit(self, task: int) -> bool:
        """Commit a whole task. Returns: False where another worker was first."""
        with self._lock:
            log = self._logs.pop(task)
            del self._expected[task]
            if self._places.is_lot(task):
                for key in log.done:
                    self._lot_of.pop(key, None)
        is_ours = log.commit(self._worker)
        began, before = self._begun.pop(task)
        if is_ours:
            self.happened.append(_ended(log, before, time.monotonic() - began))
        return is_ours

    def checkpoint(self) -> None:
        """Make all outcomes so far safe against loss of power."""
        for log in self._open_logs():
            log.checkpoint()

    def discard(self) -> None:
        """Leave open tasks for a later start, without what this one wrote of them."""
        for log in self._open_logs():
            log.discard()

    def close(self) -> None:
        """Leave open tasks for a later start, what they hold durable."""
        for log in self._open_logs():
            log.close()

    def _open_logs(self) -> list[TaskLog]:
        with self._lock:
            return list(self._logs.values())

    def _by_task(self, outcomes: Outcomes) -> Iterator[tuple[int, Outcomes]]:
        tasks = self._tasks_of(outcomes)
        if not len(tasks):
            return
        if (tasks == tasks[0]).all():
            yield int(tasks[0]), outcomes
            return
        steps = np.diff(tasks)
        if (steps >= 0).all():
            starts = [0, *(np.flatnonzero(steps) + 1).tolist()]
            parts = outcomes.parted([*starts, len(tasks)])
            yield from zip(tasks[starts].tolist(), parts, strict=True)
            return
        for task in np.unique(tasks).tolist():
            yield task, outcomes.take(np.flatnonzero(tasks == task).tolist())

    def _tasks_of(self, outcomes: Outcomes) -> npt.NDArray[np.int64]:
        tasks = self._places.tasks_of(outcomes.keys)
        if self._lot_of:
            known = map(self._lot_of.get, outcomes.keys.tolist(), tasks.tolist())
            tasks = np.fromiter(known, np.int64, len(tasks))
        return tasks

    def _copies_of(self, outcomes: Outcomes) -> list[Outcome]:
        with self._lock:
            leaders = [i for i, key in enumerate(outcomes.keys.tolist()) if key in self._copies]
            waiting = [self._copies.pop(int(outcomes.keys[i])) for i in leaders]
            self.num_waiting_copies -= sum(len(rows) for _, rows in waiting)
        copied: list[Outcome] = []
        found = outcomes.take(leaders).unpack()
        for outcome, (plan, rows) in zip(found, waiting, strict=True):
            if outcome.error_kind in NOT_COPIED:
                self.again.append(plan.prompts.take(rows))
                continue
            source = self._places.place_of(outcome.key)
            copied += [_copy(outcome, plan.prompts.keys[i], source) for i in rows]
        return copied


def _ended(log: TaskLog, before: Counts, seconds: float) -> TaskEnded:
    now = log.counts
    prompt_tokens = now.prompt_tokens - before.prompt_tokens
    output_tokens = now.output_tokens - before.output_tokens
    return TaskEnded(
        task=log.task,
        rows=now.done - before.done,
        ok=now.ok - before.ok,
        failed=now.failed - before.failed,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        seconds=round(seconds, 3),
        tokens_s=round((prompt_tokens + output_tokens) / max(seconds, 1e-3), 1),
    )


def _copy(outcome: Outcome, key: int, source: str) -> Outcome:
    return msgspec.structs.replace(
        outcome, key=key, attempts=0, seconds=0.0, copied_from=source
    )
