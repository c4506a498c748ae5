"""How a run goes -> a word to stop, where it is better not gone on with: failures, hours, money, room on the disk.

Promises: the first cap that is reached is told with its numbers and with what to change; a cap drains, as a signal does.
Knows nothing of: engines, rows. The clock is given, so tests own time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import msgspec

from rowmill import rundir
from rowmill.config import RunConfig
from rowmill.executors.money import Money
from rowmill.executors.stopping import Stop
from rowmill.journal import Counts, Paid
from rowmill.storage import LocalStorage, Storage

STOPPED_EARLY = 5
HOUR_S = 3600.0
GIB = 2**30
LARGE_DISK_GIB = 20
"""From here on a gibibyte is kept free unless `run.min_free_gib` says otherwise."""
LOOK_S = 1.0
MILLION = 1e6


class Caps:
    """The caps of one start."""

    def __init__(
        self,
        config: RunConfig,
        storage: Storage,
        stop: Stop,
        *,
        before: Paid | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Caps of a start; `before`: what earlier ones paid for."""
        self._config, self._storage, self._stop, self._clock = config, storage, stop, clock
        self._began = self._looked_at = clock()
        self._earlier_s = seconds_before(storage) if config.gpu_hour_price else 0.0
        self.gpus = 1.0
        """GPUs that are paid for; set once they are known."""
        self.worked_s: float | None = None
        """Seconds of all workers together; None: there is one, and it works since `begin`."""
        self._before = before or Paid()
        self._prompt_tokens = self._before.prompt_tokens
        self._output_tokens = self._before.output_tokens

    def begin(self) -> None:
        """The work begins now."""
        self._began = self._clock()

    @property
    def cost(self) -> float:
        """What this start and all before it have cost so far, at the price given; 0 without one."""
        config = self._config
        worked_s = self._clock() - self._began if self.worked_s is None else self.worked_s
        hours = (worked_s + self._earlier_s) / HOUR_S
        tokens = self._prompt_tokens * (config.prompt_million_price or 0.0)
        tokens += self._output_tokens * (config.output_million_price or 0.0)
        return hours * self.gpus * (config.gpu_hour_price or 0.0) + tokens / MILLION

    @property
    def money(self) -> Money:
        """What it costs, and will."""
        config = self._config
        return Money(
            self.cost,
            self.gpus * (config.gpu_hour_price or 0.0),
            config.prompt_million_price or 0.0,
            config.output_million_price or 0.0,
        )

    def count(self, counts: Counts) -> None:
        """Take in the tokens of this start so far: cost is of them."""
        self._prompt_tokens = self._before.prompt_tokens + counts.prompt_tokens
        self._output_tokens = self._before.output_tokens + counts.output_tokens

    def check(self, counts: Counts, *, rejected: int, entered: int) -> None:
        """Look at all of them.

        Args:
            counts: of this start.
            rejected: rows among them that fell out before the engine.
            entered: rows read so far.
        """
        self.count(counts)
        self._check_share(counts, counts.failed - rejected, counts.done - rejected)
        # Against all rows read: those that were found good are still to be answered.
        self._check_share(counts, rejected, entered)
        self._check_hours()
        self._check_cost()
        self._check_tokens()
        if self._clock() - self._looked_at >= LOOK_S:
            self._looked_at = self._clock()
            self._check_room()

    def _check_share(self, counts: Counts, failed: int, rows: int) -> None:
        config = self._config
        if rows < config.max_failed_after or failed <= config.max_failed_share * rows:
            return
        top = counts.top_errors(1)[0]
        self._ask(
            f"{failed} of {rows} rows failed, more than `run.max_failed_share` ="
            f" {config.max_failed_share:g} allows; most often: {top[1]}"
        )

    def _check_hours(self) -> None:
        most = self._config.max_hours
        if most is not None and self._clock() - self._began > most * HOUR_S:
            self._ask(f"`run.max_hours` = {most:g} reached")

    def _check_cost(self) -> None:
        most = self._config.max_cost
        if most is not None and self.cost >= most:
            self._ask(
                f"`run.max_cost` = {most:g} reached ({self._prices()}, earlier starts counted in); raise it to go on"
            )

    def _prices(self) -> str:
        config, parts = self._config, []
        if config.gpu_hour_price:
            parts.append(f"{self.gpus:g} x {config.gpu_hour_price:g} an hour")
        if config.prompt_million_price:
            parts.append(f"{self._prompt_tokens:,} tokens in")
        if config.output_million_price:
            parts.append(f"{self._output_tokens:,} tokens out")
        return ", ".join(parts)

    def _check_tokens(self) -> None:
        most, tokens = self._config.max_total_tokens, self._prompt_tokens + self._output_tokens
        if most is not None and tokens >= most:
            self._ask(
                f"`run.max_total_tokens` = {most:,} reached ({tokens:,}, earlier starts counted in);"
                " raise it to go on"
            )

    def _check_room(self) -> None:
        if not isinstance(self._storage, LocalStorage):
            return
        try:
            total, _, free = shutil.disk_usage(self._storage.root)
        except OSError:
            return  # a write will say why, and with what
        least = self._config.min_free_gib
        if least is None:
            least = 1.0 if total >= LARGE_DISK_GIB * GIB else 0.0
        if free < least * GIB:
            self._ask(
                f"the disk of `{self._storage.root}` has {free / GIB:.2f} GiB left, less than"
                f" `run.min_free_gib` = {least:g}; free some, and run the same command again"
            )

    def _ask(self, reason: str) -> None:
        self._stop.ask(reason, STOPPED_EARLY)


def seconds_before(storage: Storage) -> float:
    """How long earlier workers of this run were at it, by the last moment in each one's events."""
    return sum(_last_moment(storage.read(name)) for name in storage.list(rundir.EVENTS))


def _last_moment(events: bytes) -> float:
    for line in reversed(events.splitlines()):
        try:
            return float(msgspec.json.decode(line)["at"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            continue  # cut short when its writer was killed
    return 0.0
