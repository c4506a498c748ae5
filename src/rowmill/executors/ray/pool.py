"""Tasks left to commit -> as many Ray actors as they are worth, watched, replaced, let go.

Promises: a worker that is lost, alone or with its node, is replaced as long as rows are answered between losses;
one with nothing to do is let go; none outlives the pool.
Knows nothing of: rows, how a run is opened or published.
Threads: that of the caller.
Source: Ray 2.60; `ray.util.ActorPool` neither grows nor replaces its actors.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import msgspec

from rowmill.errors import ConfigError, EngineDied, InputChanged, RowmillError
from rowmill.eventlog import EventLog
from rowmill.events import Listener, Note
from rowmill.executors.caps import Caps
from rowmill.executors.ray import cluster, policy
from rowmill.executors.ray.actor import Order, RayWorker
from rowmill.executors.ray.ledger import Ledger
from rowmill.executors.ray.preparers import Preparers
from rowmill.executors.ray.view import progress_of
from rowmill.executors.sharing import Ended, Look
from rowmill.executors.slots import Slot
from rowmill.executors.stopping import Stop
from rowmill.journal import Counts
from rowmill.telemetry.sampler import apart_s

TICK_S = 0.5
GAUGE_S = 1.0
ROOM_S = 5.0
"""Between two counts of the nodes."""
TELL_S = 30.0
"""Workers that find no room for so long are told of."""
MOST_LOSSES = 5
"""Workers lost in a row without a row answered, beyond one for each that there may be."""
LEAVE_S = 20.0
"""Beyond `run.drain_s`: what a worker that was asked to end may take, before it is ended."""
FOREVER_S = 1e9
ACTOR_THREADS = 4
"""One works, the others look and stop."""


class Member:
    """One actor, seen from the pool."""

    def __init__(self, number: int, actor: Any, *, since: float) -> None:
        self.number, self.actor, self.since = number, actor, since
        self.work = actor.work.remote()
        self.looking: Any = None
        """The look that was asked for and is not there yet."""
        self.look: Look | None = None
        self.is_leaving = False

    @property
    def is_idle(self) -> bool:
        """Whether it held no task when it was last looked at."""
        return self.look is not None and self.look.open_tasks == 0

    def __str__(self) -> str:
        where = f" (process {self.look.pid} on {self.look.host})" if self.look else ""
        return f"worker {self.number}{where}"


class Pool:
    """The workers of one run."""

    def __init__(
        self,
        ray: ModuleType,
        order: Order,
        ledger: Ledger,
        preparers: Preparers,
        *,
        most: int | None,
        need: dict[str, float],
        caps: Caps,
        stop: Stop,
        log: EventLog,
        listen: Listener | None,
    ) -> None:
        """No worker yet.

        Args:
            most: workers at once that the job allows; None: as many as there is room for.
            need: resources of one worker.
        """
        self._ray, self._order, self._ledger = ray, order, ledger
        self._preparers = preparers
        self._most, self._need = most, need
        self._caps, self._stop, self._log, self._listen = caps, stop, log, listen
        self._class = ray.remote(RayWorker)
        self._members: dict[Any, Member] = {}
        self._ended: list[Look] = []
        self._retries: Counter[str] = Counter()
        self._paid_s = 0.0
        """Of workers that have ended."""
        self._room = policy.room(cluster.living_nodes(ray), need)
        self._losses = policy.Losses(MOST_LOSSES + (most or self._room))
        self._number = 0
        self._logged_at = 0.0
        self._began = self._told_at = self._counted_at = self._waits_since = time.monotonic()
        self._first_row_at: float | None = None
        self._last_row_at = self._began

    # -- what a summary asks ------------------------------------------------------------

    @property
    def total(self) -> int:
        """Rows of the run as far as known."""
        return self._ledger.total

    @property
    def seconds(self) -> float:
        """From the first row to the last commit."""
        return self._last_row_at - (self._first_row_at or self._last_row_at)

    @property
    def engine_start_s(self) -> float:
        """From the first worker's start to its first row."""
        return (self._first_row_at or self._began) - self._began

    @property
    def cost(self) -> float:
        """What the run has cost so far; 0 where no price is given."""
        return self._caps.cost

    @property
    def new_counts(self) -> Counts:
        """Over the outcomes of this start, as far as workers told."""
        told = self._all_looks()
        return Counts(
            ok=sum(look.asked for look in told),
            prompt_tokens=sum(look.prompt_tokens for look in told),
            output_tokens=sum(look.output_tokens for look in told),
        )

    @property
    def retries(self) -> list[tuple[str, int]]:
        """Requests that were made again, as far as workers told at their end: (cause, number)."""
        return self._retries.most_common()

    def all_counts(self) -> Counts:
        """Over the whole run, as far as it is committed."""
        return self._ledger.counts

    # -- the work -----------------------------------------------------------------------

    def run(self) -> None:
        """Have all tasks committed; returns after the last commit, or a stop.

        Raises:
            ConfigError: a worker finds settings, model, library or input not as they should be.
            EngineDied, StorageError: workers are lost one after another; what was done is kept.
        """
        self._caps.begin()
        self._caps.gpus = self._need["GPU"] or 1.0
        try:
            with self._stop.draining():
                while self._ledger.open_tasks and not self._stop:
                    self._fit()
                    self._wait(TICK_S)
                    self._ledger.refresh()
                    self._preparers.step(len(self._members))
                    self._tell()
                    self._caps.worked_s = self._worked_s()
                    self._caps.check(self.new_counts, rejected=0, entered=0)
                self._last_row_at = time.monotonic()
                self._let_all_go()
                self._caps.count(self.new_counts)
        finally:
            self._preparers.close()
            for member in self._members.values():
                self._ray.kill(member.actor)
            self._log.close()

    def _let_all_go(self) -> None:
        """Ask all to end, and wait for what they have in flight."""
        reason, code = self._stop.reason or "nothing is left to do", self._stop.exit_code
        if self._stop:
            self._note(f"stopping: {len(self._members)} workers drain")
        for member in self._members.values():
            member.actor.stop.remote(reason, code)
            member.is_leaving = True
        give_up_at = time.monotonic() + self._drain_s() + LEAVE_S
        while self._members and time.monotonic() < give_up_at:
            self._wait(TICK_S)
        self._ledger.refresh()
        self._tell(at_once=True)
        prepared = sum(look.prepared for look in self._all_looks())
        if prepared:
            self._note(f"{prepared:,} rows came to their workers tokenised ahead")

    def _drain_s(self) -> float:
        return float(self._order.job.get("run", {}).get("drain_s", 8.0)) if self._stop else 0.0

    # -- growing and shrinking ----------------------------------------------------------

    def _fit(self) -> None:
        now = time.monotonic()
        if now - self._counted_at >= ROOM_S:
            self._counted_at = now
            self._room = cluster.room_for(self._ray, self._need)
        wanted = policy.wanted(
            open_tasks=self._ledger.open_tasks, most=self._most, room=self._room
        )
        staying = [member for member in self._members.values() if not member.is_leaving]
        for _ in range(wanted - len(staying)):
            self._start()
        idle = [member for member in staying if member.is_idle]
        for member in idle[: max(0, len(staying) - wanted)]:
            self._event(f"{member} is let go: no task is left for it")
            member.is_leaving = True
            member.actor.stop.remote("no task is left for it", 0)
        waiting = [member for member in staying if member.look is None]
        if not waiting or len(waiting) < len(staying):
            self._waits_since = now
        elif now - self._waits_since > TELL_S:
            self._waits_since = now
            self._note(f"no worker has started yet: one needs {self._words_of_need()}")

    def _words_of_need(self) -> str:
        words = " and ".join(f"{n:g} {name}" for name, n in self._need.items() if n)
        return f"{words}; the living nodes have room for {self._room}"

    def _start(self) -> None:
        self._number += 1
        actor = self._class.options(
            num_cpus=self._need["CPU"],
            num_gpus=self._need["GPU"],
            max_restarts=0,
            max_concurrency=ACTOR_THREADS,
        ).remote(self._order_of(self._number))
        member = Member(self._number, actor, since=time.monotonic())
        self._members[member.work] = member

    def _order_of(self, number: int) -> Order:
        of = self._num_workers()
        # Without end: who has nothing to do is let go by the pool, and not before another needs it.
        slot = Slot(index=(number - 1) % of, of=of, patience_s=FOREVER_S)
        return msgspec.structs.replace(self._order, slot=slot)

    def _num_workers(self) -> int:
        return max(1, len(self._members), self._most or self._room)

    # -- watching -----------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        """Until a worker ends, at most so long; then take in what there is."""
        if not self._members:
            time.sleep(seconds)
            return
        ended, _ = self._ray.wait(list(self._members), timeout=seconds)
        for ref in ended:
            self._ended_one(self._members.pop(ref))
        self._look()

    def _look(self) -> None:
        workers = self._num_workers()
        asked = {m.looking: m for m in self._members.values() if m.looking is not None}
        if asked:
            there, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=0)
            for ref in there:
                self._looked(asked[ref], ref)
        for member in self._members.values():
            if member.looking is None:
                member.looking = member.actor.look.remote(workers)

    def _looked(self, member: Member, ref: Any) -> None:
        member.looking = None
        try:
            look: Look = self._ray.get(ref)
        except self._ray.exceptions.RayError:
            return  # its work ends in the same way, and is told of there
        if member.look is None:
            self._event(f"worker {member.number} works as process {look.pid} on {look.host}")
        member.look = look
        for text in look.notes:
            self._note(f"{member}: {text}")
        self._note_start(look)

    def _note_start(self, look: Look) -> None:
        if self._first_row_at is None and look.working_s:
            self._first_row_at = time.monotonic() - look.working_s

    def _ended_one(self, member: Member) -> None:
        self._paid_s += time.monotonic() - member.since
        try:
            ended: Ended = self._ray.get(member.work)
        except self._ray.exceptions.RayTaskError:
            raise  # our own mistake
        except self._ray.exceptions.RayError as error:
            if member.look is not None:
                self._ended.append(member.look)
            self._lost(member, _why(error), error)
            return
        self._ended.append(ended.look)
        self._retries.update(dict(ended.retries))
        self._note_start(ended.look)
        if ended.error is not None:
            self._failed(member, ended.error)
        elif ended.exit_code:
            self._stop.ask(ended.stopped, ended.exit_code)

    def _failed(self, member: Member, error: RowmillError) -> None:
        if isinstance(error, ConfigError | InputChanged) and not self._stop:
            raise error
        self._lost(member, error.sentence(), error)

    def _lost(self, member: Member, why: str, error: BaseException) -> None:
        if self._stop or not self._ledger.open_tasks:
            return
        self._room = cluster.room_for(self._ray, self._need)
        self._note(f"{member} is lost, another takes its place: {why}")
        if self._losses.lost(sum(look.asked for look in self._all_looks())):
            return
        if isinstance(error, RowmillError):
            raise error
        reason = f"{self._losses.total} workers were lost, the last ones without a row answered: {why}"
        raise EngineDied(reason=reason) from error

    # -- telling ------------------------------------------------------------------------

    def _all_looks(self) -> list[Look]:
        return [*self._living_looks(), *self._ended]

    def _living_looks(self) -> Sequence[Look]:
        return [member.look for member in self._members.values() if member.look is not None]

    def _worked_s(self) -> float:
        now = time.monotonic()
        looked = (m.since for m in self._members.values() if m.look is not None)
        return self._paid_s + sum(now - since for since in looked)

    def _tell(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if now - self._told_at < GAUGE_S and not at_once:
            return
        self._told_at = now
        event = progress_of(
            self._ledger,
            self._living_looks(),
            self._ended,
            workers=len(self._members),
            seconds=now - (self._first_row_at or now),
        )
        if at_once or now - self._logged_at >= apart_s(now - self._began):
            self._logged_at = now
            self._log.add(event)
        if self._listen is not None:
            self._listen(event)

    def _event(self, text: str) -> None:
        """For those who look later."""
        self._log.add(Note(text=text))

    def _note(self, text: str) -> None:
        self._event(text)
        if self._listen is not None:
            self._listen(Note(text=text))


def _why(error: BaseException) -> str:
    """The first line of Ray's words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
