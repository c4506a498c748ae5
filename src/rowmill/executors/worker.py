"""One worker: claims tasks, has their rows answered, commits them.

Four threads: one reads and validates ahead, one measures and plans, this one feeds the engine, a receiver
writes outcomes; a keeper wakes for checkpoints, commits and gauges.
Promises: a task is committed with its last outcome; after a stop nothing new is asked.
Knows nothing of: how a run is opened or published.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import chain

import msgspec

from rowmill.engines.care import Care, care_of
from rowmill.engines.warm import WarmFleet
from rowmill.errors import InputChanged, Stopped
from rowmill.events import Listener, Progress
from rowmill.executors.asking import Asking
from rowmill.executors.caps import Caps
from rowmill.executors.claims import Claims
from rowmill.executors.first_rows import FirstRows
from rowmill.executors.foretelling import Foretelling
from rowmill.executors.opening import Opened, check_input, planned_event, start_run, stations_of
from rowmill.executors.pacing import Pacing
from rowmill.executors.probing import read_probe
from rowmill.executors.profiles import feed_of
from rowmill.executors.slots import ALONE, Slot
from rowmill.executors.stopping import Stop
from rowmill.executors.telling import Stand, Teller, progress_event, queues
from rowmill.flow import Buffer, Clock, Keeper, drain, fill
from rowmill.journal import Again, Counts
from rowmill.leases import Leases
from rowmill.opentasks import OpenTasks
from rowmill.outcomes import pack
from rowmill.pipeline import Valid, Window, weight_of
from rowmill.rows import Prompts
from rowmill.storage import Storage

LOOKAHEAD_BYTES = 96 * 2**20
"""Rows that are checked before the engine is started, at most: 200,000 of up to 100 tokens fit in."""
AHEAD_BYTES = 32 * 2**20
"""Planned rows that may wait once it runs; so many more are read while it starts."""
VALID_BYTES = 8 * 2**20
"""Text of rows that may wait to be measured: reading goes on while others are tokenised."""
TICK_S = 0.2


class Worker:
    """The work of one process on a run."""

    def __init__(
        self,
        opened: Opened,
        storage: Storage,
        *,
        name: str,
        token: str,
        stop: Stop,
        listen: Listener | None,
        again: dict[int, Again] | None = None,
        warm: WarmFleet | None = None,
        slot: Slot = ALONE,
    ) -> None:
        """Prepare the work.

        Args:
            again: the tasks whose failed rows are asked once more, and no others are done.
            warm: engines that are open already, and stay so.
            slot: which of several workers this one is.
        """
        job = opened.words.job
        self._opened, self._storage, self._name = opened, storage, name
        self._job, self._stop = job, stop
        self.teller = Teller(storage, name, listen)
        self.tasks = OpenTasks(opened.places, name)
        self._leases = Leases(storage, worker=name, token=token, lease_s=job.run.lease_s)
        self._stations = stations_of(opened)
        self._pacing = Pacing(opened, probe=read_probe(storage), tell=self.teller.note)
        self.foretelling = Foretelling(
            job, self._stations, is_wanted=warm is None, probe=self._pacing.probe
        )
        self._feed = feed_of(job, opened.words.limits)
        starts_slowly = opened.words.limits.starts_slowly
        self._valid: Buffer[Valid] = Buffer(LOOKAHEAD_BYTES if starts_slowly else VALID_BYTES)
        self._buffer: Buffer[Window] = Buffer(LOOKAHEAD_BYTES + AHEAD_BYTES)
        self._asking = Asking(
            job,
            storage,
            self._feed,
            put=self._pacing.through(self.tasks.put),
            care=self._care(),
            warm=warm,
        )
        self.claims = Claims(storage, self._leases, self.tasks, opened, again, slot)
        wanted = slot.share(min(job.validate_.first_rows, opened.cut.num_lines))
        self._first = FirstRows(self._stations, self.claims, wanted)
        self._resumed = self.claims.resumed
        self._caps = Caps(job.run, storage, stop, before=self.claims.paid)
        self.total = opened.cut.most_rows - self.claims.blank_lines
        """Rows of the run as far as known: lines, less the blank ones met."""
        self._keeping = Clock()
        self._stand = Stand(
            *(self._stations, self._valid, self._buffer, self._feed, self._asking),
            *(self.tasks, self.claims, self._keeping),
        )
        self._began = self._checkpoint_at = time.monotonic()
        self.seconds = 0.0
        self._entered = self._rejected = 0
        """Rows of windows handed over so far, and those of them that fell out before the engine."""
        self._is_checked = self._is_over = False
        """Whether the first rows are: until then so many tasks are claimed as hold them. And whether all is."""

    def work(self) -> None:
        """Answer all rows that can be claimed; returns after the last commit, or a stop.

        Raises:
            ConfigError: the first rows show that the job is to be refused.
            EngineDied, StorageError: what was done is kept.
        """
        if not self.has_work:
            self._begin_without_rows()
            return
        self._began = time.monotonic()
        self._caps.begin()
        with self._leases, self._stop.draining():
            claims = self.claims.rows(
                self._has_enough,
                lambda: self._is_over or bool(self._stop),
                lambda: self._feed.in_flight > 0 or self._stations.num_read > self._entered,
            )
            fill(self._valid, self._stations.validated(claims), weight_of, name="rowmill-read")
            planned = chain.from_iterable(map(self._stations.planned, drain(self._valid)))
            fill(self._buffer, planned, weight_of, name="rowmill-measure")
            keeper = None
            try:
                self._check_first_rows()
                keeper = Keeper(self._keep, TICK_S, name="rowmill-keep")
                self._pump(keeper)
                self._settle(keeper)
            finally:
                self._is_over = True
                self._valid.close()
                self._buffer.close()
                self._asking.close()
                if keeper is not None:
                    keeper.stop()
                is_other_input = isinstance(sys.exception(), InputChanged)
                self.tasks.discard() if is_other_input else self.tasks.close()
                self.seconds = time.monotonic() - self._began - self.engine_start_s
                if self._is_checked and sys.exception() is None:
                    self.teller.end(self._progress(), self._stand, entered=self._entered)

    def _begin_without_rows(self) -> None:
        """An input without a row is a run like any other, but no engine is started for it."""
        if self._opened.is_new:
            self._begin_run()
            self._tell_plan()

    @property
    def engine_start_s(self) -> float:
        """How long the engines took to start."""
        return self._asking.start_s

    @property
    def retries(self) -> list[tuple[str, int]]:
        """Requests of this start that were made again: (cause, number), most frequent first."""
        return self._asking.retries

    @property
    def num_known(self) -> int:
        """Rows whose token ids others had made."""
        return self._stations.num_known

    @property
    def cost(self) -> float:
        """What the run has cost so far; 0 where no price is given."""
        return self._caps.cost

    @property
    def has_work(self) -> bool:
        """Whether any task is left to do."""
        return bool(self.claims.todo)

    @property
    def new_counts(self) -> Counts:
        """Counts over the outcomes of this start."""
        return self.tasks.counts

    def all_counts(self) -> Counts:
        """Counts over the whole run as this worker knows it."""
        counts = Counts()
        counts.merge(self._resumed)
        counts.merge(self.tasks.counts)
        return counts

    # -- reading ahead ------------------------------------------------------------------

    def _has_enough(self) -> bool:
        """Whether so much waits to be asked that the next task is better left to another worker."""
        if not self._is_checked:
            return self._stations.num_validated >= max(1, self._first.wanted)
        waiting = self._stations.num_validated - self._entered
        most = max(self._feed.target_rows, 4 * self._job.plan.window_rows)
        return waiting >= most or self.claims.has_share

    def _check_first_rows(self) -> None:
        """Wait until the first rows are checked; refuse the job before anything is asked or kept.

        Raises:
            DuplicateIds: ids repeat among them.
        """
        if self._opened.words.limits.starts_slowly:
            self._start_early()
            return
        first, buffer = self._first, self._buffer
        self._await(buffer, lambda: first.are_read() or buffer.weight >= LOOKAHEAD_BYTES)
        self._begin_run()
        self._checked()

    def _start_early(self) -> None:
        """Start an engine that takes long as soon as the first rows are validated: they are tokenised meanwhile.

        What would refuse the job shows before rows are tokenised; one window is, to see that there is something to ask.
        """
        stations = self._stations
        self._await(self._valid, lambda: self._first.are_validated() or self._valid.is_full)
        self._await(self._buffer, self._first.can_ask)
        self._begin_run()
        if stations.num_tokens and not self._stop:
            self.foretelling.begin(self.total - self._resumed.done)
            self._asking.start()
            stations.limits = self._asking.limits or stations.limits
        self._valid.bound(VALID_BYTES)
        self._checked()

    def _await(self, buffer: Buffer[Valid] | Buffer[Window], until: Callable[[], bool]) -> None:
        while not self._stop and not buffer.wait(until, TICK_S):
            pass

    def _begin_run(self) -> None:
        if self._opened.is_new:
            self._stop.end_before_begun()
            self._stations.check_duplicates()
            self._stations.check_any_asked()
            start_run(self._opened, self._storage)
        self.teller.begin()

    def _checked(self) -> None:
        self._stations.duplicates.clear()
        self._is_checked = True
        self._tell_plan()

    def _tell_plan(self) -> None:
        done = self._resumed.done
        told = self.foretelling.lines(self.total - done), self.foretelling.said()
        self.teller.hear(planned_event(self._opened, self._stations, *told, resumed=done))

    # -- feeding ------------------------------------------------------------------------

    def _pump(self, keeper: Keeper) -> None:
        """Hand windows to the engine as it has room."""
        while not self._must_end(keeper):
            self._ask_again(keeper)
            window = self._buffer.take(TICK_S)
            if window is not None:
                self._enter(window, keeper)
                for batch in window.plan.batches(self._feed.batch_rows):
                    if not self._ask(batch, keeper):
                        return
            elif self._buffer.is_drained:
                self._feed.no_more()
                return

    def _enter(self, window: Window, keeper: Keeper) -> None:
        """Note a window's rejects, copies and ends of tasks before its rows are asked."""
        if window.lot is not None:
            self.tasks.await_rows(window.lot, window.keys())
        self.tasks.await_copies(window.plan)
        self._pacing.enter(window)
        self._entered += window.num_rows
        if window.rejects:
            self.tasks.put(pack(window.rejects))
            self._rejected += len(window.rejects)
        for task, num_rows in window.ends:
            self.total -= self._opened.places.task_lines(task) - num_rows
            self.claims.ahead.discard(task)
            self.tasks.expect(task, num_rows)
        if window.ends:
            keeper.nudge()

    def _ask(self, batch: Prompts, keeper: Keeper) -> bool:
        """Give rows to the engine once there is room. Returns: whether to go on."""
        while not self._feed.wait_room(len(batch), TICK_S):
            if self._must_end(keeper):
                return False
        if self._must_end(keeper):
            return False
        self._asking.ask(batch)
        self._buffer.bound(AHEAD_BYTES)
        return True

    def _ask_again(self, keeper: Keeper) -> None:
        """Ask rows that were to copy one that failed in passing."""
        while self.tasks.again and self._asking.is_on:
            rows, most = self.tasks.again.popleft(), self._feed.batch_rows
            for start in range(0, len(rows), most):
                if not self._ask(rows.slice(start, min(start + most, len(rows))), keeper):
                    return

    def _settle(self, keeper: Keeper) -> None:
        """Wait for what is in flight: to the end, or as long as a drain may take."""
        give_up_at = None
        while self._feed.in_flight > 0 or (self.tasks.again and not self._stop):
            self._raise_errors(keeper)
            if self._stop and give_up_at is None:
                give_up_at = time.monotonic() + self._job.run.drain_s
                self._tell_stop()
                self._asking.drain()
            if self._stop and self._asking.is_over:
                break
            if give_up_at is not None and time.monotonic() > give_up_at:
                return
            if not self._stop:
                self._ask_again(keeper)
                self._check_caps()
            self._feed.wait_idle(TICK_S)
        keeper.stop()
        self._raise_errors(keeper)
        self._caps.count(self.tasks.counts)
        self._keep()

    def _tell_stop(self) -> None:
        rows, seconds = self._feed.in_flight, self._job.run.drain_s
        if seconds:
            said = f"stopping: up to {seconds:g} s for {rows:,} rows in flight"
            self.teller.note(f"{said}; Ctrl-C again to stop now")

    def _care(self) -> Care:
        return msgspec.structs.replace(
            care_of(self._job.run), tell=self.teller.note, is_stopping=lambda: bool(self._stop)
        )

    def _must_end(self, keeper: Keeper) -> bool:
        self._raise_errors(keeper)
        self._check_caps()
        return bool(self._stop)

    def _raise_errors(self, keeper: Keeper) -> None:
        for error in (self._asking.error, keeper.error):
            if isinstance(error, Stopped):
                self._stop.ask(str(error), error.exit_code)
            elif error is not None:
                raise error

    def _check_caps(self) -> None:
        self._caps.gpus = self._asking.gpus
        self._caps.check(self.tasks.counts, rejected=self._rejected, entered=self._entered)

    # -- keeping ------------------------------------------------------------------------

    def _keep(self) -> None:
        """Commit whole tasks, checkpoint in time, tell how far the run is."""
        with self._keeping:
            self._keep_safe()
        self.teller.tell_happened(self._stand)
        if self.teller.is_moment():
            self._asking.see_gauges()
            self.teller.tell(self._progress(), self._stand, entered=self._entered)

    def _keep_safe(self) -> None:
        whole = self.tasks.whole_tasks()
        check_input(self._opened, whole)
        for task in whole:
            self.tasks.commit(task)
            self._leases.release(task)
        now = time.monotonic()
        if now - self._checkpoint_at >= self._job.run.checkpoint_s:
            self._checkpoint_at = now
            self.tasks.checkpoint()

    def _progress(self) -> Progress:
        return progress_event(
            self._resumed,
            self.tasks.counts,
            total=self.total,
            seconds=time.monotonic() - self._began - self.engine_start_s,
            work=self._pacing.work(self.total - self._resumed.done),
            money=self._caps.money,
            queues=queues(
                self._feed,
                self._asking.gauges,
                planned_bytes=self._buffer.weight,
                copies=self.tasks.num_waiting_copies,
            ),
        )
