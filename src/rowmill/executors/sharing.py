"""A run that another process owns -> the work of one worker on it, watched and stopped from outside.

Promises: it works only while the run lives, under its token; what went wrong is told, not raised, so that it
crosses to another machine whole.
Knows nothing of: who started it, who publishes.
Threads: `work` takes one; `look` and `stop` may be called from others.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque

import msgspec

from rowmill.config import Job
from rowmill.errors import EngineDied, RowmillError
from rowmill.events import Note, Progress
from rowmill.executors.opening import open_run
from rowmill.executors.preparing import with_prepared
from rowmill.executors.slots import Slot, pod_name
from rowmill.executors.stopping import Stop
from rowmill.executors.worker import Worker
from rowmill.flow import calm_interpreter
from rowmill.journal import Counts
from rowmill.leases import claim_output
from rowmill.storage import open_storage

MAX_NOTES = 20


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker is, at a glance."""

    host: str
    pid: int
    working_s: float
    """Since its engine started; 0 before it has rows to ask."""
    open_tasks: int
    open_ok: int
    """Rows of tasks that are not committed yet, with what earlier holders of those answered."""
    open_failed: int
    in_flight: int
    prompt_tokens: int
    """Over the rows answered here."""
    output_tokens: int
    asked: int
    engine_start_s: float
    prepared: int
    """Rows whose token ids were made ahead."""
    queues: dict[str, float]
    notes: list[str]
    """What it had to say since the last look."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker ended."""

    look: Look
    error: RowmillError | None = None
    stopped: str = ""
    """Why it ended before the tasks did."""
    exit_code: int = 0
    retries: list[tuple[str, int]] = []
    """Requests that were made again: (cause, number)."""


class Share:
    """One worker of a run."""

    def __init__(
        self, job: Job, *, token: str, slot: Slot, reads_prepared: bool = False
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            token: of the run, which lives.
            slot: which tasks come first.
            reads_prepared: token ids may have been made ahead.
        """
        # The owner has checked the first rows, and counts hours and money over all workers.
        run = job.run.model_copy(update={"max_hours": None, "max_cost": None})
        validating = job.validate_.model_copy(update={"first_rows": 0, "strict": False})
        self._job = job.model_copy(update={"run": run, "validate_": validating})
        self._token, self._slot = token, slot
        self._reads_prepared = reads_prepared
        self._stop = Stop()
        self._worker: Worker | None = None
        self._last = Progress(done=0, ok=0, failed=0, total=0)
        self._notes: deque[str] = deque(maxlen=MAX_NOTES)
        self._began = time.monotonic()

    def work(self) -> Ended:
        """Answer all rows that can be claimed, until none is left or `stop` was called."""
        error: RowmillError | None = None
        try:
            self._work()
        except RowmillError as raised:
            error = raised
        return Ended(
            look=self.look(self._slot.of),
            error=error,
            stopped=self._stop.reason,
            exit_code=self._stop.exit_code,
            retries=self._worker.retries if self._worker else [],
        )

    def stop(self, reason: str, exit_code: int) -> None:
        """Have it drain and end."""
        self._stop.ask(reason, exit_code)

    def look(self, workers: int) -> Look:
        """How it is; it shares what is left with so many workers, itself among them."""
        self._slot = msgspec.structs.replace(self._slot, of=workers)
        worker, last = self._worker, self._last
        open_tasks, ok, failed = worker.tasks.open_counts() if worker else (0, 0, 0)
        counts = worker.new_counts if worker else Counts()
        if worker is not None:
            worker.claims.slot = self._slot
        return Look(
            host=socket.gethostname(),
            pid=os.getpid(),
            working_s=self._working_s(bool(counts.done or last.in_flight)),
            open_tasks=open_tasks,
            open_ok=ok,
            open_failed=failed,
            in_flight=last.in_flight,
            prompt_tokens=counts.prompt_tokens,
            output_tokens=counts.output_tokens,
            asked=counts.done,
            engine_start_s=worker.engine_start_s if worker else 0.0,
            prepared=worker.num_known if worker else 0,
            queues=last.queues,
            notes=[self._notes.popleft() for _ in range(len(self._notes))],
        )

    def _working_s(self, has_asked: bool) -> float:
        if self._worker is None or not has_asked:
            return 0.0
        return time.monotonic() - self._began - self._worker.engine_start_s

    def _work(self) -> None:
        job = self._job
        storage = open_storage(job.output.path)
        with claim_output(storage, token=self._token, lease_s=job.run.lease_s) as owner:
            if not owner.has_joined:
                raise EngineDied(reason="the process that owned the run has ended")
            opened = open_run(job, storage, token=self._token)
            opened = with_prepared(opened, storage) if self._reads_prepared else opened
            worker = Worker(
                opened,
                storage,
                name=pod_name(),
                token=self._token,
                stop=self._stop,
                listen=self._hear,
                slot=self._slot,
            )
            self._worker, self._began = worker, time.monotonic()
            with calm_interpreter(), contextlib.closing(worker.teller):
                worker.work()

    def _hear(self, event: object) -> None:
        if isinstance(event, Progress):
            self._last = event
        if isinstance(event, Note):
            self._notes.append(event.text)
