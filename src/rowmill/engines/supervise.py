"""Prompts -> Outcomes, through an engine that may die: restarted, with the rows it held given again.

Promises: every row submitted comes back as exactly one outcome; a row in flight at two deaths is a suspect,
and suspects are halved, each half alone with the engine, until the one is found that kills it.
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
from rowmill.engines.channel import Answers, Bye, Channel, ChannelClosed, End, Fatal, Gauge
from rowmill.engines.ledger import Ledger
from rowmill.engines.process import EngineProcess, last_lines, start_process
from rowmill.engines.triage import Triage
from rowmill.outcomes import Outcomes, pack
from rowmill.rows import Limits, Outcome, Prompts

_START_TRIES = 3
_KILLERS_IN_A_ROW = 5
"""So many rows that each kill the engine alone, with no answer between: the engine is broken, not the rows."""
_BACK_OFF_S = 0.1
_MAX_BACK_OFF_S = 10.0
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
    ) -> None:
        self._engine = engine
        self._environment = environment or {}
        self._log = log
        self._record = record
        self._process: EngineProcess | None = None
        # Guards which channel rows go to and what is held back; the send itself happens under it.
        self._sending = threading.Lock()
        self._channel: Channel | None = None
        self._ledger = Ledger()
        self._triage = Triage()
        self._held: list[Prompts] = []
        self._quiet_deaths = 0
        self._killers = 0
        self._is_finished = False
        self._closing = threading.Event()
        self.deaths = 0
        """Times the engine died after it was ready."""
        self.gauge: Gauge | None = None
        """What the child last said of itself."""

    @property
    def in_flight(self) -> int:
        """Rows submitted and without an outcome."""
        held = sum(map(len, list(self._held)))
        return len(self._ledger) + self._triage.waiting + held

    def start(self) -> Limits:
        """Start the child and open the engine; end an engine first that a killed run left behind.

        Raises:
            ConfigError: Settings, model or library are not as they should be.
            EngineDied: It cannot be started.
        """
        if self._record is not None:
            orphans.end_orphan(self._record)
        return self._start(is_first=True)

    def submit(self, prompts: Prompts) -> None:
        """Give rows to the engine; blocks only while the socket is full."""
        with self._sending:
            if self._channel is None or self._triage.is_on:
                self._held.append(prompts)
            else:
                self._send(prompts)

    def finish(self) -> None:
        """Say that no more rows will be submitted: `outcomes` ends when all are answered."""
        with self._sending:
            self._is_finished = True
            self._say_end()

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
                case Bye() if self._is_all_answered():
                    return
                case Fatal(kind=errors.Stopped.__name__):
                    raise _rebuild(message)
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
        process, self._process = self._process, None
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
        self._ledger.add(prompts)
        # A broken channel is seen by the receiver too, who gives every noted row again.
        with contextlib.suppress(ChannelClosed):
            if self._channel is not None:
                self._channel.send_prompts(prompts)

    def _say_end(self) -> None:
        """Tell the child that no more will come, if that is so; caller holds the lock."""
        is_held_back = self._triage.is_on or bool(self._held)
        if self._is_finished and self._channel is not None and not is_held_back:
            with contextlib.suppress(ChannelClosed):
                self._channel.send(End())

    def _settle(self, outcomes: Outcomes) -> Outcomes:
        fresh = self._ledger.settle(outcomes)
        if len(fresh):
            self._killers = self._quiet_deaths = 0
        if self._triage.deaths_of:
            fresh = pack([self._with_deaths(outcome) for outcome in fresh.unpack()])
        if self._triage.is_on and not len(self._ledger):
            self._feed_on()
        return fresh

    def _with_deaths(self, outcome: Outcome) -> Outcome:
        deaths = self._triage.deaths_of.pop(outcome.key, 0)
        if not deaths:
            return outcome
        return msgspec.structs.replace(outcome, attempts=outcome.attempts + deaths)

    def _feed_on(self) -> None:
        """Give the next group of suspects, or, where none is left, all that was held back."""
        with self._sending:
            batches = self._triage.next_group()
            if not batches:
                batches, self._held = self._held, []
            for prompts in batches:
                self._send(prompts)
            self._say_end()

    def _after_death(self, fatal: Fatal | None) -> Outcomes:
        """Sort out who was there, start again, give rows again.

        Returns:
            The outcome of a row that is found to kill the engine.
        """
        ending = self._bury(fatal)
        if self._closing.is_set():
            return pack([])
        with self._sending:
            rest, killer = self._triage.blame(self._ledger.drain())
            self._held[:0] = rest
        killed = [] if killer is None else [self._killed(killer, ending)]
        if not self._is_all_answered() and self._restart():
            self._feed_on()
        return pack(killed)

    def _restart(self) -> bool:
        """Start again.

        Returns:
            False where `close` came in between.
        """
        try:
            self._start(is_first=False)
        except errors.EngineDied:
            if self._closing.is_set():
                return False
            raise
        return True

    def _bury(self, fatal: Fatal | None) -> str:
        """Clear away what is left of the engine.

        Returns:
            How it ended, in words.
        """
        with self._sending:
            self._channel = None
        self.deaths += 1
        process, self._process = self._process, None
        if process is None:
            return "it was closed"
        if fatal is None:
            return process.end()
        # It is on its way out, and its log may still be filling.
        process.wait(1.0)
        process.end()
        return str(_rebuild(fatal))

    def _killed(self, row: Prompts, ending: str) -> Outcome:
        """The outcome of the one row in flight at a death.

        Raises:
            EngineDied: So many in a row that it cannot be the rows.
        """
        self._killers += 1
        if self._killers >= _KILLERS_IN_A_ROW:
            raise errors.EngineDied(
                reason=f"engine `{self._engine.name}` died on each of {self._killers} rows given to it"
                f" alone ({ending}); {self._last_words(0)}"
            )
        deaths = self._triage.deaths_of.pop(row.keys[0])
        reason = (
            f"the engine died ({ending}) with this row alone in flight, after {deaths - 1} earlier"
            f" deaths with it; see `{self._log}`, change the row or leave it out"
        )
        return Outcome(
            key=row.keys[0],
            status="error",
            prompt_tokens=len(row.ids),
            max_tokens=row.max_tokens[0],
            attempts=deaths,
            error_kind=errors.KilledEngine.kind,
            error=str(errors.KilledEngine(reason=reason)),
        )

    def _start(self, *, is_first: bool) -> Limits:
        """Start a child, again if it dies at that, and let rows go to it.

        Raises:
            ConfigError: The child says so.
            EngineDied: It says so at the run's first start, or it died at each try.
        """
        ending, log_start = "", 0
        for tries in range(_START_TRIES):
            self._rest(tries, is_first=is_first)
            log_start = self._log.stat().st_size if self._log.exists() else 0
            process = self._process = start_process(
                log=self._log, record=self._record, environment=self._environment
            )
            # From here on `close` ends this process; before, it could not see it.
            with contextlib.suppress(ChannelClosed):
                if not self._closing.is_set():
                    limits = process.open(self._engine)
                    self._channel = process.channel
                    return limits
            self._process = None
            ending = process.end()
            fatal = _rebuild(process.fatal) if process.fatal else None
            if fatal and (is_first or isinstance(fatal, errors.ConfigError)):
                raise fatal
            ending = str(fatal or ending)
            if self._closing.is_set():
                break
        raise errors.EngineDied(
            reason=f"engine `{self._engine.name}` ended {_START_TRIES} times at its start ({ending});"
            f" {self._last_words(log_start)}"
        )

    def _rest(self, tries: int, *, is_first: bool) -> None:
        """Wait before a start: longer with each death in a row; not while deaths are expected."""
        if not is_first and not tries:
            self._quiet_deaths += 1
        quiet = 0 if self._triage.is_on else max(0, self._quiet_deaths - 1)
        steps = tries + quiet
        if steps:
            self._closing.wait(min(_MAX_BACK_OFF_S, _BACK_OFF_S * 2**steps))

    def _last_words(self, start: int) -> str:
        words = last_lines(self._log, start)
        if not words:
            return (
                f"it wrote nothing to `{self._log}`; try `engine.seats` lower, or another model"
            )
        return f"its last words in `{self._log}`: {words}"


def _rebuild(fatal: Fatal) -> errors.RowmillError:
    """The error that the child named."""
    kind = getattr(errors, fatal.kind, errors.EngineDied)
    try:
        error: errors.RowmillError = kind(**fatal.fields)
    except TypeError:
        return errors.EngineDied(reason=fatal.kind)
    return error
