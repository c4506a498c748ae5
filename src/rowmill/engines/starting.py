"""An engine's settings -> a child that is ready, in as many tries and with as many steps down as it takes.

Promises: a start that fails is told in the engine's own words, with what helps where that is known;
out of memory takes a step down, said and kept before it is tried; one that is not ready in time is ended.
Knows nothing of: rows.
Memory: the steps taken.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import orphans
from rowmill.engines.care import Care
from rowmill.engines.channel import ChannelClosed, Fatal
from rowmill.engines.ladder import Ladder
from rowmill.engines.process import EngineProcess, NotReady, last_lines, start_process
from rowmill.engines.remedies import KILLED_FOR_MEMORY, Remedy, remedy_for
from rowmill.rows import Limits

_TRIES = 3
_BACK_OFF_S = 0.1
_MAX_BACK_OFF_S = 10.0
_LOG_BYTES = 65536
HOPELESS = ("weights", "cache")
"""Signs against which neither another try nor a step down helps."""


class Starter:
    """Starts the processes of one engine, one after the other."""

    def __init__(
        self,
        engine: EngineConfig,
        *,
        log: Path,
        record: Path | None,
        environment: Mapping[str, str],
        care: Care,
    ) -> None:
        self.log = log
        self.closing = threading.Event()
        """Set once nothing is to be started any more."""
        self.process: EngineProcess | None = None
        self.limits: Limits | None = None
        """What the engine said of itself when it was last ready."""
        self._name = engine.name
        self._record, self._environment, self._care = record, environment, care
        self._ladder = Ladder(engine, care.taken)
        self._log_start = 0
        self._kills_before = 0

    def start(self, *, is_first: bool, rest: int = 0) -> Limits:
        """Start a child, again if it dies at that, until it is ready.

        Args:
            is_first: what it says is wrong is final; later it was right before.
            rest: waits longer before the first try, the more of them.

        Raises:
            ConfigError: The child says so.
            NeverReady: It took too long.
            EngineDied: It cannot be started, or is not wanted any more.
        """
        tries, ending = 0, ""
        while tries < _TRIES:
            self._wait(tries + rest)
            limits = self._try(is_first=is_first)
            if limits is not None:
                self.limits = limits
                return limits
            fatal, ending = self._ending()
            if self.closing.is_set():
                break
            remedy = self.remedy(f"{ending} {fatal or ''}")
            if remedy is not None and remedy.sign == "memory" and self.step_down(remedy):
                continue
            tries += 1
            self._raise_if_final(fatal, remedy, is_first=is_first)
        raise errors.EngineDied(
            reason=f"engine `{self._name}` ended {_TRIES} times at its start ({ending});"
            f" {self.last_words()}"
        )

    def remedy(self, ending: str) -> Remedy | None:
        """What the end of the last child is a sign of: its own last words, how it ended, what the system did."""
        was_killed = "SIGKILL" in ending or "exit code -9" in ending
        if was_killed and orphans.memory_kills() > self._kills_before:
            return KILLED_FOR_MEMORY
        return remedy_for(f"{self._log_text()} {ending}")

    def step_down(self, remedy: Remedy) -> bool:
        """Take the next step down the ladder, say and keep it. Returns: False where there is none."""
        step = self._ladder.step_down(self.limits)
        if step is None:
            return False
        self._care.tell(
            f"engine `{self._name}`: {remedy.what}; goes on with {step}; kept for later starts"
        )
        self._care.keep(step)
        return True

    def last_words(self) -> str:
        """The end of the log, in a sentence; with what helps where that is known."""
        words = last_lines(self.log, self._log_start)
        if not words:
            return (
                f"it wrote nothing to `{self.log}`; try `engine.seats` lower, or another model"
            )
        remedy = remedy_for(self._log_text())
        told = f"its last words in `{self.log}`: {words}"
        return f"{remedy}; {told}" if remedy else told

    def _try(self, *, is_first: bool) -> Limits | None:
        """One start. Returns: None where it died.

        Raises:
            NeverReady: It took too long.
        """
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._kills_before = orphans.memory_kills()
        process = self.process = start_process(
            log=self.log, record=self._record, environment=self._environment
        )

        def is_over() -> bool:
            return self.closing.is_set() or (is_first and self._care.is_stopping())

        # From here on `close` ends this process; before, it could not see it.
        try:
            if not self.closing.is_set():
                return process.open(
                    self._ladder.engine, within_s=self._care.start_s, is_over=is_over
                )
        except ChannelClosed:
            pass
        except NotReady as error:
            process.kill()
            process.end()
            self.process = None
            if is_over():
                raise errors.EngineDied(reason="stopped while the engine started") from error
            raise self._never_ready() from error
        return None

    def _never_ready(self) -> errors.NeverReady:
        return errors.NeverReady(
            reason=f"engine `{self._name}` was not ready after `run.start_s` = {self._care.start_s:g} s;"
            f" raise it, or see what it waits for: {self.last_words()}"
        )

    def _ending(self) -> tuple[errors.RowmillError | None, str]:
        """Clear away a child that was never ready: what it said, and how it ended."""
        process, self.process = self.process, None
        if process is None:
            return None, "it was closed"
        ending = process.end()
        fatal = rebuilt(process.fatal) if process.fatal else None
        return fatal, str(fatal or ending)

    def _raise_if_final(
        self, fatal: errors.RowmillError | None, remedy: Remedy | None, *, is_first: bool
    ) -> None:
        if isinstance(fatal, errors.ConfigError):
            raise _with_remedy(fatal, remedy)
        # Memory that another process held at the first try may be free at the next.
        is_passing = remedy is not None and remedy.sign == "held"
        if fatal is not None and (is_first and not is_passing):
            raise _with_remedy(fatal, remedy)
        if remedy is not None and remedy.sign in HOPELESS:
            reason = f"engine `{self._name}` cannot be started; {self.last_words()}"
            raise errors.EngineDied(reason=reason)

    def _wait(self, steps: int) -> None:
        if steps:
            self.closing.wait(min(_MAX_BACK_OFF_S, _BACK_OFF_S * 2**steps))

    def _log_text(self) -> str:
        """What the last child wrote, its end at least."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self._log_start, size - _LOG_BYTES))
            return file.read().decode("utf-8", "replace")
        return ""


def rebuilt(fatal: Fatal) -> errors.RowmillError:
    """The error that the child named."""
    kind = getattr(errors, fatal.kind, errors.EngineDied)
    try:
        error: errors.RowmillError = kind(**fatal.fields)
    except TypeError:
        return errors.EngineDied(reason=fatal.kind)
    return error


def _with_remedy(fatal: errors.RowmillError, remedy: Remedy | None) -> errors.RowmillError:
    """The child's own words, and what helps."""
    if remedy is None or set(fatal.fields) != {"reason"}:
        return fatal
    told = str(remedy)
    if remedy.sign == "held" and (left := orphans.strays()):
        groups = " ".join(f"-{pgid}" for pgid in left)
        told += (
            f"; engines of a rowmill that is gone still run: `kill -9 -- {groups}` ends them"
        )
    return type(fatal)(reason=f"{told} - {fatal}")
