"""Tasks that no worker holds yet -> their token ids, made by actors on nodes that have cores to spare.

Promises: what lies on the disk at once is bounded; a task's file goes once the task is committed, and all of them at
the end; whatever goes wrong here costs time alone: the workers tokenise what is missing.
Knows nothing of: what ids are for.
Threads: that of the caller.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import ConfigError, StorageError
from rowmill.executors.preparing import Made, Preparer
from rowmill.executors.ray import cluster, policy
from rowmill.executors.ray.actor import Order, check_version
from rowmill.executors.ray.ledger import Ledger
from rowmill.prepared import MOST_BYTES, remove_all
from rowmill.storage import Storage

DISK_BYTES = 4 * 2**30
"""Of token ids at once, with the most that those may take which are just being made."""
AT_ONCE = 2
"""Tasks that one is given: it need not wait for the next."""
LOOK_S, CLAIMS_S = 5.0, 1.0
"""Between two looks at the nodes, and at who holds which task."""
MOST_LOSSES = 3
"""Lost in a row without a task tokenised, beyond one for each that there may be."""
LEAVE_S = 5.0
ACTOR_THREADS = AT_ONCE + 1
"""One works, others wait for it, the last stops it."""


class RayPreparer:
    """The actor."""

    def __init__(self, order: Order) -> None:
        # It has one core of its node, whatever else the tokenizers' threads would find there.
        os.environ.setdefault("RAYON_NUM_THREADS", "1")
        self._order, self._turn = order, threading.Lock()
        self._preparer = Preparer(Job.model_validate(order.job), token=order.token)

    def prepare(self, task: int) -> Made:
        """Tokenise one task."""
        try:
            check_version(self._order)
        except ConfigError as error:
            return Made(task, error=error)
        with self._turn:
            return self._preparer.prepare(task)

    def stop(self) -> None:
        """Leave off."""
        self._preparer.stop()

    def close(self) -> None:
        """Give back its share in the run."""
        with self._turn:
            self._preparer.close()


class Member:
    """One actor, seen from here."""

    def __init__(self, actor: Any, spot: str) -> None:
        self.actor, self.spot = actor, spot
        self.tasks: dict[Any, int] = {}
        """What it was given and did not give back yet, by reference."""


class Preparers:
    """All that tokenise ahead for one run."""

    def __init__(
        self,
        ray: ModuleType,
        order: Order,
        storage: Storage,
        ledger: Ledger,
        *,
        asked: int | None,
        most: int | None,
        need: dict[str, float],
        note: Callable[[str], None],
    ) -> None:
        """None yet.

        Args:
            asked: as many as the job asks for; None: `policy.spots` says.
            most: workers at once that the job allows.
            need: resources of one worker.
            note: tells people.
        """
        self._ray, self._order, self._storage, self._ledger = ray, order, storage, ledger
        self._asked, self._most, self._need, self._note = asked, most, need, note
        self._class = ray.remote(RayPreparer)
        self._members: list[Member] = []
        self._sizes: dict[int, int] = {}
        """Bytes of each task that was made and not removed."""
        self._spots: list[str] = []
        self._looked_at = self._claims_at = -LOOK_S
        self._lost_row = 0
        self._is_over = asked == 0

    def step(self, workers: int) -> None:
        """Take in what is done, clear away what is needed no more, give out what is next; waits for nothing."""
        if self._is_over:
            return
        open_tasks = self._ledger.open_list()
        self._collect()
        self._clear(set(open_tasks))
        if workers and not self._is_over:
            self._look()
            self._give(open_tasks, workers)

    def close(self) -> None:
        """End all, and remove what is left of theirs."""
        self._is_over = True
        for member in self._members:
            member.actor.stop.remote()
        waiting = [ref for member in self._members for ref in member.tasks]
        waiting += [member.actor.close.remote() for member in self._members]
        if waiting:
            self._ray.wait(waiting, num_returns=len(waiting), timeout=LEAVE_S)
        for member in self._members:
            self._ray.kill(member.actor)
        self._members = []
        try:
            remove_all(self._storage)
            self._storage.sweep()
        except StorageError as error:
            self._note(
                f"token ids made ahead are left until the next start: {error.sentence()}"
            )

    def _collect(self) -> None:
        for member in list(self._members):
            done, _ = (
                self._ray.wait(list(member.tasks), num_returns=len(member.tasks), timeout=0)
                if member.tasks
                else ([], [])
            )
            for ref in done:
                task = member.tasks.pop(ref, None)
                if task is not None:
                    self._take_in(member, ref)

    def _take_in(self, member: Member, ref: Any) -> None:
        try:
            made: Made = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            # A mistake of ours, or no memory: no reason to end a run that can do without.
            self._give_up(f"`{type(error.cause).__name__}` on a node")
            return
        except self._ray.exceptions.RayError:
            member.tasks.clear()
            if member in self._members:
                self._members.remove(member)
            self._lost_row += 1
            if self._lost_row > MOST_LOSSES + len(self._spots):
                self._give_up("processes that do so are lost one after another")
            return
        if made.error is not None:
            self._give_up(made.error.sentence())
            return
        self._lost_row = 0
        self._sizes[made.task] = made.num_bytes

    def _give_up(self, why: str) -> None:
        if not self._is_over:
            self._note(f"nothing is tokenised ahead any more, workers do it: {why}")
            self.close()

    def _clear(self, open_tasks: set[int]) -> None:
        for task in [task for task in self._sizes if task not in open_tasks]:
            try:
                self._storage.remove(rundir.prepared(task))
            except StorageError as error:
                self._give_up(error.sentence())
                return
            del self._sizes[task]

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        self._spots = policy.spots(
            cluster.nodes_by_id(self._ray), self._need, most=self._most, asked=self._asked
        )
        for spot in policy.missing(self._spots, (member.spot for member in self._members)):
            self._start(spot)

    def _start(self, spot: str) -> None:
        place = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id=spot, soft=False
        )
        actor = self._class.options(
            num_cpus=1,
            num_gpus=0,
            max_restarts=0,
            max_concurrency=ACTOR_THREADS,
            scheduling_strategy=place,
        ).remote(self._order)
        self._members.append(Member(actor, spot))

    def _give(self, open_tasks: list[int], workers: int) -> None:
        idle = [m for m in self._members for _ in range(AT_ONCE - len(m.tasks))]
        given = {task for member in self._members for task in member.tasks.values()}
        room = (DISK_BYTES - sum(self._sizes.values())) // MOST_BYTES - len(given)
        if not idle or room <= 0 or not open_tasks:
            return
        now = time.monotonic()
        if now - self._claims_at < CLAIMS_S:
            return
        self._claims_at = now
        names = self._storage.list(rundir.LEASES)
        tasks = policy.ahead(
            open_tasks,
            {task for name in names if (task := rundir.task_of_lease(name)) is not None},
            self._sizes.keys() | given,
            workers=workers,
            preparers=len(self._members),
        )
        for member, task in zip(idle, tasks[:room], strict=False):
            member.tasks[member.actor.prepare.remote(task)] = task
