"""One episode while it runs: its job, the workers that live, and what its faults cost and were seen to do."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Literal

from tests.chaos.schedule import Moment
from tests.kill import left
from tests.kill.left import Broken
from tests.kill.moments import SIGNS
from tests.kill.small_job import LIMIT_S, SmallJob, Worker

ALL_OK, SOME_FAILED = 0, 4
POLL_S = 0.0005

Due = Callable[[], bool]


@dataclass
class Toll:
    """What the faults of an episode were, and cost."""

    observed: Counter[str] = field(default_factory=Counter)
    """Faults whose effect was seen, by kind."""
    unseen: Counter[str] = field(default_factory=Counter)
    """Faults that came too late, or whose effect was not seen: they count for nothing."""
    deaths: int = 0
    """Times that rows in flight were lost with a process."""
    torn_rows: int = 0
    """Rows whose outcomes were cut off the disk."""
    repeated: int = 0
    """Starts of rows beyond the first of each."""
    allowed: int = 0
    """The most that may be repeated."""
    unkept_rows: int = 0
    """The most rows that were answered since the last checkpoint, at deaths of workers."""
    taken_rows: int = 0
    """Rows of tasks that were taken over while their holder slept: both may answer them."""


class Scene:
    """See the module."""

    def __init__(self, job: SmallJob, *, killers: frozenset[str] = frozenset()) -> None:
        """An episode that begins.

        Args:
            killers: places of the rows that kill every engine.
        """
        self.job, self.toll = job, Toll()
        self._killers = killers
        self._end_code = SOME_FAILED if killers else ALL_OK
        self.has_slept = False
        """Whether a worker slept while others went on: it may answer again what is on the disk by then."""
        self._lead: Worker | None = None
        self._excused: list[Worker] = []
        self._kept: list[tuple[set[int], Counter[int]]] = []

    @property
    def is_done(self) -> bool:
        """Whether results are published whole."""
        return (self.job.out / "done.json").exists()

    @property
    def started(self) -> Counter[int]:
        """How often each row was started by an engine so far."""
        return left.starts(self.job.log)

    def lead(self) -> Worker | None:
        """The worker that goes on with the run; None where the run is at its end.

        Raises:
            Broken: it died of what nobody did to it.
        """
        if self._lead is not None and not self._lead.is_running:
            code = self._lead.code()
            if code == self._end_code:
                return None
            if code != -signal.SIGKILL and self._lead not in self._excused:
                told = f"exit code {code}, and nobody did it harm: {self._lead.told()}"
                raise Broken(told)
        if self._lead is None or not self._lead.is_running:
            self._lead = self.job.start()
        return self._lead

    def excuse(self, worker: Worker) -> None:
        """It died in words, as it should."""
        self._excused.append(worker)

    def follow(self, worker: Worker) -> None:
        """Another than the one started last goes on with the run."""
        self._lead = worker

    def wait(self, moment: Moment, worker: Worker) -> bool:
        """Wait for a moment. Returns: whether the worker lives to see it."""
        is_due = self._due(moment)
        if not self.until(is_due, worker):
            return False
        time.sleep(moment.after_s)
        return worker.is_running

    def until(self, is_due: Due, worker: Worker, *, limit_s: float = LIMIT_S) -> bool:
        """Wait for something. Returns: False where the worker ended before, or it never came."""
        give_up_at = time.monotonic() + limit_s
        while not is_due():
            if not worker.is_running or time.monotonic() > give_up_at:
                return False
            time.sleep(POLL_S)
        return True

    def _due(self, moment: Moment) -> Due:
        if moment.sign == "start":
            return lambda: True
        if moment.sign == "engine":
            return lambda: bool(self.engines())
        if moment.sign == "results":
            return lambda: self.written("results") > 0
        if moment.sign == "commit":
            commits = self.written("commits") + 1
            return lambda: self.written("commits") >= commits
        started = self.started
        rows_left = len(self.job.rows) - len(started)
        wanted = started.total() + max(1, round(moment.share * rows_left))
        return lambda: self.started.total() >= wanted

    def written(self, what: Literal["commits", "results"]) -> int:
        """How many of these there are at the output; half-written results too."""
        return SIGNS[what](self.job.out)

    def engines(self) -> list[int]:
        """Engines of this episode that are alive."""
        alive = set(left.living(self.job.mark))
        return [pid for pid in left.engine_pids(self.job) if pid in alive]

    def note_death(self, *, of_engine: bool = False, torn_rows: Set[int] = frozenset()) -> None:
        """Rows in flight were lost with a process: they may be asked again, what is on the disk may not."""
        self.look()
        self.toll.deaths += 1
        self.toll.unkept_rows += 0 if of_engine else self.unkept_rows()
        self.toll.torn_rows += len(torn_rows)
        # What is torn may have been kept through earlier deaths.
        self._kept = [(rows - torn_rows, started) for rows, started in self._kept]
        self._kept.append((self._rows_on_disk(), self.started))

    def _rows_on_disk(self) -> set[int]:
        """What is read may be removed by a parent that lives and commits: then it is looked at again."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                return left.rows_on_disk(self.job.out)

    def look(self, folder: str = "") -> None:
        """Have `job.out`, or a folder of it, show what lies at the output."""

    def end(self) -> None:
        """Let the run go to its end, and see that all is well."""
        while (worker := self.lead()) is not None:
            left.check_ended(self.job, worker, wanted=self._end_code)
        self.look()
        left.check_whole(self.job, killers=self._killers)
        left.check_nobody_lives(self.job)

    def saw(self, fault: str, was_seen: bool) -> None:
        """Count a fault, where its effect was seen."""
        (self.toll.observed if was_seen else self.toll.unseen)[fault] += 1

    def token(self) -> str:
        """Of the run that owns the output; empty where none says so yet."""
        return self.job.token()

    def has_begun(self) -> bool:
        """Whether others can join the run."""
        return bool(self.token())

    def leases(self) -> dict[int, tuple[int, str]]:
        """Epoch and holder of every task that has had one."""
        self.look("leases")
        found = {}
        for file in (self.job.out / "leases").glob("[0-9]*.json"):
            with contextlib.suppress(ValueError, FileNotFoundError):
                lease = json.loads(file.read_bytes())
                found[int(lease["task"])] = int(lease["epoch"]), str(lease["worker"])
        return found

    def commits(self) -> list[str]:
        """Who committed each task that is committed."""
        self.look("commits")
        files = sorted((self.job.out / "commits").glob("*.json"))
        return [str(json.loads(file.read_bytes())["worker"]) for file in files]

    def unkept_rows(self) -> int:
        """The most rows that are answered and that no checkpoint has: they are lost with a worker."""
        return 0

    def check_bound(self) -> None:
        """See that no row on the disk was asked again, and no more rows than the bound allows."""
        starts, toll = self.started, self.toll
        for on_disk, before in self._kept if not self.has_slept else []:
            again = [key for key in on_disk if starts[key] > before[key]]
            if again:
                told = f"rows with an outcome were asked again: {again}"
                raise Broken(told)
        toll.repeated = starts.total() - len(starts)
        toll.allowed = (
            toll.deaths * self.job.most_in_flight
            + toll.unkept_rows
            + toll.torn_rows
            + toll.taken_rows
        )
        if toll.repeated > toll.allowed:
            told = f"{toll.repeated} rows repeated, {toll.allowed} allowed"
            raise Broken(told)


def comes_true(is_due: Due, limit_s: float) -> bool:
    """Wait for something that needs no worker to live."""
    give_up_at = time.monotonic() + limit_s
    while not is_due():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(POLL_S)
    return True
