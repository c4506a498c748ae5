"""Tasks of a run -> those this worker holds, with what is left of them to do.

Promises: a task is read only under its lease; one that another worker holds is waited for, in case that one dies;
one that is committed is passed over.
Knows nothing of: what rows say, engines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.executors.lots import lot_rows
from rowmill.executors.opening import Opened
from rowmill.executors.slots import Slot
from rowmill.flow import Clock
from rowmill.journal import Again, Counts, TaskLog, paid_of, read_commits
from rowmill.leases import Leases
from rowmill.opentasks import OpenTasks
from rowmill.pipeline import TaskRows
from rowmill.storage import Storage

WAIT_S = 0.2
ENOUGH_S = 0.02


class Claims:
    """What one worker may do of a run."""

    def __init__(
        self,
        storage: Storage,
        leases: Leases,
        tasks: OpenTasks,
        opened: Opened,
        again: dict[int, Again] | None,
        slot: Slot,
    ) -> None:
        """Look at what is done.

        Args:
            tasks: where the logs of claimed tasks go.
            slot: which tasks come first, and how long to wait for those of others.
            again: tasks whose failed rows are asked once more, and no others are done; None: those not committed.
        """
        self._storage, self._leases, self._tasks = storage, leases, tasks
        self._places, self._again, self.slot = opened.places, again or {}, slot
        commits = read_commits(storage)
        open_tasks = [task for task in range(opened.cut.num_tasks) if task not in commits]
        self.todo = slot.arranged(open_tasks if again is None else list(again))
        self.num_left = len(self.todo)
        """Tasks that were left to claim when they were last gone through."""
        self.is_out = False
        """Whether others hold all that was left then: who waits for more rows may wait for one who waits for him."""
        self.ahead: set[int] = set()
        """Tasks claimed here that are not read to their end yet; whoever reads takes them out."""
        self.blocked, self.starved = Clock(), Clock()
        """How long it waited because enough is read, and for tasks that others hold."""
        self.resumed = Counts()
        """Of outcomes that earlier starts wrote, as far as their tasks are committed or claimed by now."""
        self.blank_lines = 0
        """Lines of tasks that are committed and not asked again, which were no rows."""
        for task in commits.keys() - set(self.todo):
            self.resumed.merge(commits[task].counts)
            self.blank_lines += self._places.task_lines(task) - commits[task].num_rows
        self.paid = paid_of(*(commit.paid() for commit in commits.values()))
        """For outcomes that earlier starts wrote, so far, and for those that are asked again."""

    def rows(
        self,
        has_enough: Callable[[], bool],
        is_over: Callable[[], bool],
        is_busy: Callable[[], bool],
    ) -> Iterator[TaskRows | None]:
        """The rows left to do, task by task; None while others hold all that is left.

        Args:
            has_enough: whether the next task is better left to others for now.
            is_over: whether no more are wanted.
            is_busy: whether rows of earlier tasks are still being answered.
        """
        todo = self.todo
        idle_since = time.monotonic()
        while todo and not is_over():
            left = []
            self.num_left = len(todo)
            for task in todo:
                yield from self._turn(lambda: has_enough() and not is_over())
                if is_over():
                    return
                epoch = self._leases.claim(task)
                self.num_left -= 1
                if epoch is None:
                    left.append(task)
                elif rows := self._claimed(task, epoch):
                    self.is_out = False
                    yield rows
                    idle_since = time.monotonic()
            todo = [task for task in left if not self._is_committed(task)]
            idle_since = time.monotonic() if is_busy() else idle_since
            if time.monotonic() - idle_since > self.slot.patience_s:
                return
            if todo:
                self.is_out = True
                yield None
                with self.starved:
                    time.sleep(WAIT_S)

    def _turn(self, must_wait: Callable[[], bool]) -> Iterator[None]:
        """Wait until the next task may be claimed."""
        is_told = False
        while must_wait():
            if self.has_share and not is_told:
                # What is read of those held is planned now, or it would wait for the next task, and that for it.
                is_told = True
                yield None
            with self.blocked:
                time.sleep(ENOUGH_S)

    @property
    def has_share(self) -> bool:
        """Whether it holds as much unread as is fair to the others."""
        return len(self.ahead) >= self.slot.fair_tasks(self.num_left)

    def _claimed(self, task: int, epoch: int) -> TaskRows | None:
        """A task whose lease is ours; None where its last holder committed it before it let go."""
        try:
            # Asked after the claim: a holder commits first and gives the lease back then.
            log = None if self._is_committed(task) else self._open(task, epoch)
        except StorageError:
            # A holder that was only asleep commits, and removes what we are about to take over.
            if not self._is_committed(task):
                raise
            log = None
        if log is None:
            self._leases.release(task)
            return None
        self.resumed.merge(log.counts)
        self.paid.add(log.paid())
        if (again := self._again.get(task)) is not None:
            self.paid.add(again.before.paid(), times=-1)  # among those of all commits
        self._tasks.open(log)
        self.ahead.add(task)
        done = set(log.done)
        if self._places.is_lot(task):
            return TaskRows(
                task, [], done, lot=lambda: lot_rows(self._storage, self._places, task)
            )
        return TaskRows(task, list(self._places.task_slices(task)), done)

    def _open(self, task: int, epoch: int) -> TaskLog:
        return TaskLog(self._storage, task, epoch, self._again.get(task))

    def _is_committed(self, task: int) -> bool:
        again = self._again.get(task)
        name = rundir.commit(task, again.retry if again else 0)
        return self._storage.size(name) is not None
