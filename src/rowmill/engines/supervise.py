"""Prompts -> Outcomes, through an engine that may die: restarted, with the rows it held given again.

Promises: every row submitted comes back as exactly one outcome; a row in flight at two deaths is a suspect,
and suspects are halved, each half alone with the engine, until the one is found that kills it;
an engine that stands still is ended, and is then like one that died; one that ran out of memory is started with
less to do, and its rows are not suspects as long as that helps.
Knows nothing of: what an engine does, what becomes of outcomes.
Memory: the rows in flight. Threads: one submits, one iterates `outcomes`; restarts happen in the latter.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import orphans
from rowmill.engines.care import Care
from rowmill.engines.channel import (
    Answers,
    AtOnce,
    Bye,
    Channel,
    ChannelClosed,
    Drain,
    End,
    Fatal,
    Gauge,
)
from rowmill.engines.ledger import Ledger
from rowmill.engines.process import EngineProcess
from rowmill.engines.recycling import Recycling
from rowmill.engines.stall import Watch
from rowmill.engines.starting import Starter, rebuilt
from rowmill.engines.triage import Triage
from rowmill.outcomes import Outcomes, pack
from rowmill.rows import Limits, Outcome, Prompts

_KILLERS_IN_A_ROW = 5
"""So many rows that each kill the engine alone, with no answer between: the engine is broken, not the rows."""
_LOOK_S = 0.5
"""So often an engine that says nothing is looked at."""
_LONG_CONTEXT = 32_768
"""Where an engine does not say how long its context is."""
_GRACE_S = 5.0
_BYE_S = 5.0


class Supervisor:
    """An engine in a child process, as one that does not die."""

    def __init__(
        self,
        engine: EngineConfig,
        *,
        log: Path,
        record: Path | None = None,
        environment: Mapping[str, str] | None = None,
        care: Care | None = None,
    ) -> None:
        self._engine = engine
        self._care = care or Care()
        self._record = record
        self._starter = Starter(
            engine, log=log, record=record, environment=environment or {}, care=self._care
        )
        self._watch = Watch(self._care.stall_s)
        self._recycling = Recycling(self._care)
        # Guards which channel rows go to and what is held back; the send itself happens under it.
        self._sending = threading.Lock()
        self._channel: Channel | None = None
        self._ledger = Ledger()
        self._triage = Triage()
        self._held: list[Prompts] = []
        self._at_once = 0
        self._quiet_deaths = 0
        self._killers = 0
        self._standing = ""
        self._is_finished = self._is_draining = False
        self._closing = self._starter.closing
        self.deaths = 0
        """Times the engine died after it was ready."""
        self.gauge: Gauge | None = None
        """What the child last said of itself."""

    @property
    def limits(self) -> Limits | None:
        """What the engine said of itself when it was last started."""
        return self._starter.limits

    @property
    def _process(self) -> EngineProcess | None:
        return self._starter.process

    @property
    def in_flight(self) -> int:
        """Rows submitted and without an outcome."""
        held = sum(map(len, list(self._held)))
        return len(self._ledger) + self._triage.waiting + held

    def start(self) -> Limits:
        """Start the child and open the engine; end an engine first that a killed run left behind.

        Raises:
            ConfigError: Settings, model or library are not as they should be.
            EngineDied: It cannot be started, or not in time.
        """
        if self._record is not None:
            orphans.end_orphan(self._record)
        limits = self._starter.start(is_first=True)
        self._open()
        return limits

    def _open(self) -> None:
        """Let rows go to the child that was started, and watch it."""
        process = self._starter.process
        if process is None:
            return
        self._watch.restart()
        self._recycling.begin(process)
        process.channel.on_quiet(_LOOK_S, self._look)
        self._channel = process.channel
        if self._at_once:
            self.hold(self._at_once)

    def submit(self, prompts: Prompts) -> None:
        """Give rows to the engine; blocks only while the socket is full."""
        with self._sending:
            if self._channel is None or self._triage.is_on or self._recycling.is_due:
                self._held.append(prompts)
            else:
                self._send(prompts)

    def finish(self) -> None:
        """Say that no more rows will be submitted: `outcomes` ends when all are answered."""
        with self._sending:
            self._is_finished = True
            self._say_end()

    def drain(self) -> None:
        """Have the engine drop rows that it did not begin: `outcomes` ends once the others are answered."""
        with self._sending:
            self._is_draining = True
            if self._channel is not None:
                with contextlib.suppress(ChannelClosed):
                    self._channel.send(Drain())

    def hold(self, at_once: int) -> None:
        """Let the engine have no more than so many rows at a time, also once it is started again; 0: as many as it takes."""
        with self._sending:
            self._at_once = at_once
            if self._channel is not None:
                with contextlib.suppress(ChannelClosed):
                    self._channel.send(AtOnce(at_once))

    def outcomes(self) -> Iterator[Outcomes]:
        """Outcomes as they come, in any order, through the engine's deaths, until all is answered.

        Raises:
            EngineDied: It cannot be started again, or dies whatever it is given.
            Stopped: It says that every row would be refused now.
        """
        while (channel := self._channel) is not None and not self._closing.is_set():
            message: Any = None
            rows: Any = None
            with contextlib.suppress(ChannelClosed):
                message, rows = channel.receive()
            match message:
                case Answers():
                    yield self._settle(rows)
                case Gauge():
                    self.gauge = message
                    self._watch.stepped(message.steps)
                    if self._stands_still():
                        yield self._after_death(None)
                case Bye() if self._is_draining or self._is_all_answered():
                    return
                case Fatal(kind=errors.Stopped.__name__):
                    raise rebuilt(message)
                case _:
                    yield self._after_death(message if isinstance(message, Fatal) else None)

    def abandon(self) -> list[Prompts]:
        """Take out all rows without an outcome, in no particular order; for an engine that cannot be started again."""
        with self._sending:
            rows = [*self._ledger.drain(), *self._held]
            self._held = []
            while group := self._triage.next_group():
                rows += group
        return rows

    def close(self) -> None:
        """End the engine and all it started; what is in flight is forgotten."""
        self._closing.set()
        process, self._starter.process = self._starter.process, None
        if process is not None:
            if self._is_all_answered():
                process.wait(_BYE_S)
            process.end(grace_s=_GRACE_S)
        if self._record is not None:
            # A record that cannot be removed is read at the next start, and found to tell of nothing.
            with contextlib.suppress(OSError):
                self._record.unlink(missing_ok=True)

    def _is_all_answered(self) -> bool:
        return self._is_finished and self.in_flight == 0

    def _send(self, prompts: Prompts) -> None:
        """Note rows as in flight and send them; caller holds the lock."""
        if not len(self._ledger):
            self._watch.begin()
        self._ledger.add(prompts)
        # A broken channel is seen by the receiver too, who gives every noted row again.
        with contextlib.suppress(ChannelClosed):
            if self._channel is not None:
                self._channel.send_prompts(prompts)

    def _say_end(self) -> None:
        """Tell the child that no more will come, if that is so; caller holds the lock."""
        is_held_back = self._triage.is_on or bool(self._held) or self._recycling.is_due
        if self._is_finished and self._channel is not None and not is_held_back:
            with contextlib.suppress(ChannelClosed):
                self._channel.send(End())

    def _settle(self, outcomes: Outcomes) -> Outcomes:
        self._watch.answered(self._in_flight_tokens[0] if self._watch.quiet_s > _LOOK_S else 1)
        fresh = self._ledger.settle(outcomes)
        self._recycling.answered(len(fresh))
        if len(fresh):
            self._killers = self._quiet_deaths = 0
        if self._triage.tries_of:
            fresh = pack([self._with_deaths(outcome) for outcome in fresh.unpack()])
        if self._recycling.is_due and not len(self._ledger):
            self._recycle()
        elif self._triage.is_on and not len(self._ledger):
            self._feed_on()
        return fresh

    def _with_deaths(self, outcome: Outcome) -> Outcome:
        tries = self._triage.forget(outcome.key)
        if not tries:
            return outcome
        return msgspec.structs.replace(outcome, attempts=outcome.attempts + tries)

    def _feed_on(self) -> None:
        """Give the next group of suspects, or, where none is left, all that was held back."""
        with self._sending:
            batches = self._triage.next_group()
            if not batches:
                batches, self._held = self._held, []
            for prompts in batches:
                self._send(prompts)
            self._say_end()

    # -- standing still -----------------------------------------------------------------

    @property
    def _in_flight_tokens(self) -> tuple[int, int]:
        """Most tokens that a row in flight may generate, and prompt tokens of all."""
        context = self.limits.max_model_tokens if self.limits else 0
        return self._ledger.longest(context or _LONG_CONTEXT)

    def _stands_still(self) -> bool:
        """Whether the child is to be ended for it; says so, and ends it."""
        if not len(self._ledger):
            return False
        longest, prompt_tokens = self._in_flight_tokens
        if not self._watch.stands_still(longest_tokens=longest, prompt_tokens=prompt_tokens):
            return False
        self._standing = f"it stood still for {self._watch.quiet_s:.0f} s"
        self._watch.doubt()
        # Before any lock: a thread that sends to a full socket holds one, and is let go by this.
        if self._process is not None:
            self._process.kill()
        return True

    def _look(self) -> None:
        """Called while nothing comes from the child."""
        if self._stands_still():
            raise ChannelClosed(self._standing)

    # -- deaths -------------------------------------------------------------------------

    def _after_death(self, fatal: Fatal | None) -> Outcomes:
        """Sort out who was there, start again, give rows again.

        Returns:
            The outcome of a row that is found to kill the engine.
        """
        ending = self._bury(fatal)
        if self._closing.is_set():
            return pack([])
        self._tell_death(ending)
        remedy = self._starter.remedy(ending)
        is_memory = remedy is not None and remedy.sign == "memory"
        is_blamed = not (remedy is not None and is_memory and self._starter.step_down(remedy))
        with self._sending:
            rest, killer = self._triage.blame(self._ledger.drain(), is_blamed=is_blamed)
            self._held[:0] = rest
        killed = [] if killer is None else [self._killed(killer, ending)]
        if not (self._is_draining or self._is_all_answered()) and self._restart():
            self._feed_on()
        return pack(killed)

    def _tell_death(self, ending: str) -> None:
        if not (self._triage.is_on or self._is_draining):
            rows = len(self._ledger)
            self._care.tell(
                f"engine `{self._engine.name}` died ({ending}); it is started again for {rows:,} rows"
            )

    def _restart(self) -> bool:
        """Start again.

        Returns:
            False where `close` came in between.
        """
        # Longer with each death in a row; not while deaths are expected.
        self._quiet_deaths += 1
        rest = 0 if self._triage.is_on else self._quiet_deaths - 1
        try:
            self._starter.start(is_first=False, rest=rest)
        except errors.EngineDied:
            if self._closing.is_set():
                return False
            raise
        self._open()
        self._care.restarted()
        return True

    def _recycle(self) -> None:
        """Start anew while nothing is in flight: no death, and nobody is to blame."""
        with self._sending:
            if len(self._ledger):
                return  # sent in the same moment: once that is answered
            process, self._channel = self._process, None
            self._starter.process = None
        if process is not None:
            process.end(grace_s=_GRACE_S)
        self._care.tell(
            f"engine `{self._engine.name}` is started anew: {self._recycling.reason}"
        )
        self._quiet_deaths = 0
        if self._is_all_answered() or self._restart():
            self._quiet_deaths = 0
            self._feed_on()

    def _bury(self, fatal: Fatal | None) -> str:
        """Clear away what is left of the engine.

        Returns:
            How it ended, in words.
        """
        with self._sending:
            self._channel = None
        self.deaths += 1
        process, self._starter.process = self._starter.process, None
        standing, self._standing = self._standing, ""
        if process is None:
            return "it was closed"
        if fatal is None:
            ending = process.end()
            return standing or ending
        # It is on its way out, and its log may still be filling.
        process.wait(1.0)
        process.end()
        return str(rebuilt(fatal))

    def _killed(self, row: Prompts, ending: str) -> Outcome:
        """The outcome of the one row in flight at a death.

        Raises:
            EngineDied: So many in a row that it cannot be the rows.
        """
        self._killers += 1
        if self._killers >= _KILLERS_IN_A_ROW:
            raise errors.EngineDied(
                reason=f"engine `{self._engine.name}` died on each of {self._killers} rows given to it"
                f" alone ({ending}); {self._starter.last_words()}"
            )
        tries = self._triage.forget(row.keys[0])
        reason = (
            f"the engine died ({ending}) with this row alone in flight, after {tries - 1} earlier"
            f" deaths with it; see `{self._starter.log}`, change the row or leave it out"
        )
        return Outcome(
            key=row.keys[0],
            status="error",
            prompt_tokens=len(row.ids),
            max_tokens=row.max_tokens[0],
            attempts=tries,
            error_kind=errors.KilledEngine.kind,
            error=str(errors.KilledEngine(reason=reason)),
        )
