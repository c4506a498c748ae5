"""The engines of one worker: started when the first row is there, given rows, listened to, ended.

Promises: rows are counted in and out of the feed; what went wrong while listening is kept for the thread that feeds.
Knows nothing of: tasks, windows, when to stop.
Threads: one submits; a receiver of its own takes outcomes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from rowmill import rundir
from rowmill.config import Job
from rowmill.engines import place
from rowmill.engines.care import Care
from rowmill.engines.channel import Gauge
from rowmill.engines.fleet import Fleet
from rowmill.engines.warm import WarmFleet
from rowmill.errors import EngineDied, StorageError
from rowmill.executors.sinking import check_vectors
from rowmill.executors.steps import Steps
from rowmill.executors.vector_length import keep_length
from rowmill.feed import Feed
from rowmill.flow import Clock
from rowmill.outcomes import Outcomes
from rowmill.rows import Limits, Prompts
from rowmill.storage import Storage
from rowmill.storage.temporary import temporary_folder


class Asking:
    """See the module."""

    def __init__(
        self,
        job: Job,
        storage: Storage,
        feed: Feed,
        *,
        put: Callable[[Outcomes], None],
        care: Care,
        warm: WarmFleet | None = None,
    ) -> None:
        """Engines of a job's settings, not started.

        Args:
            storage: where their process groups are noted, so that orphans are found, and steps down are kept.
            care: how they are watched.
            put: takes outcomes, in the receiver's thread.
            warm: engines that are open already, and stay so.
        """
        self._job, self._storage, self._feed = job, storage, feed
        self._put, self._warm = put, warm
        self._steps = Steps(storage)
        self._care = msgspec.structs.replace(
            care, taken=self._steps.taken, keep=self._steps.keep, restarted=self._relimit
        )
        self._fleet: Fleet | WarmFleet | None = None
        self._receiver: threading.Thread | None = None
        self.error: BaseException | None = None
        """What ended the receiver."""
        self.limits: Limits | None = None
        """What the engines say of themselves, once they are open."""
        self._num_notes = 0
        self._filling = ""
        self._log_folder = Path()
        """Where the output is no folder: one of the temporary disk."""
        self.written_row_s = 0.0
        """Seconds times rows that were being written: answered, and in flight by the feed's count."""
        self.start_s = 0.0
        """How long the start took."""
        self.sending, self.receiving, self.writing = Clock(), Clock(), Clock()
        """How long rows were handed over, and outcomes listened for, writing them included; and that alone."""
        self.gpus = 1
        """GPUs that the engines have, once they are placed; 1 where there are none."""

    @property
    def name(self) -> str:
        """Of the engine."""
        return self._job.engine.name

    @property
    def is_on(self) -> bool:
        """Whether the engines were started."""
        return self._fleet is not None

    @property
    def gauges(self) -> list[Gauge]:
        """What the engines last said of themselves."""
        return self._fleet.gauges if self._fleet is not None else []

    @property
    def retries(self) -> list[tuple[str, int]]:
        """Requests that engines made again: (cause, number), most frequent first."""
        counts: Counter[str] = Counter()
        for gauge in self.gauges:
            counts.update(gauge.retries)
        return counts.most_common()

    def start(self) -> None:
        """Start the engines, once; they stay off where the run is stopped meanwhile.

        Raises:
            ConfigError: settings, model or library are not as they should be.
            EngineDied: they cannot be started.
        """
        if self._fleet is not None:
            return
        began = time.monotonic()
        record = self._storage.path(rundir.engine(os.getpid()))
        if record is None:
            self._log_folder = temporary_folder("engine")
        log = record.with_suffix(".log") if record else self._log_folder / "engine.log"
        self._tell_steps()
        fleet = self._warm or self._new_fleet(record, log)
        self._fleet = fleet
        try:
            limits = fleet.start()
        except EngineDied:
            if not self._care.is_stopping():
                raise
            fleet.close()
            self._fleet = None
            return
        except OSError as error:
            path = str(error.filename or record or log)
            raise StorageError(path=path, reason=error.strerror or str(error)) from error
        check_vectors(self._job, limits)
        if self._job.kind == "embed" and limits.dimensions:
            keep_length(self._storage, limits.dimensions)
        self._feed.relimit(limits)
        self.limits = limits
        self.start_s = time.monotonic() - began
        self._receiver = threading.Thread(
            target=self._receive, name="rowmill-receive", daemon=True
        )
        self._receiver.start()

    def ask(self, batch: Prompts) -> None:
        """Give rows to the engines, which are started if need be."""
        self.start()
        if self._fleet is None:
            return
        self._feed.sent(len(batch), len(batch.ids), _known_outputs(batch))
        with self.sending:
            self._fleet.submit(batch)

    def _tell_filling(self) -> None:
        """Say at the end how much of the work was filling."""
        self.see_gauges()
        if self._filling:
            self._care.tell(self._filling)

    def drain(self) -> None:
        """Have rows dropped that no engine began."""
        if self._fleet is not None:
            self._fleet.drain()

    @property
    def is_over(self) -> bool:
        """Whether no more outcomes will come."""
        return self._receiver is not None and not self._receiver.is_alive()

    def close(self) -> None:
        """End the engines; what is in flight is forgotten."""
        fleet = self._fleet
        if fleet is None:
            return
        self._tell_filling()
        was_healthy = not fleet.deaths
        fleet.close()
        if self._receiver is None:
            return
        self._receiver.join()
        if was_healthy and self.error is None:
            # What a healthy engine said is of no use to anybody, a file each start would be in the way.
            for log in fleet.logs:
                with contextlib.suppress(OSError):
                    log.unlink(missing_ok=True)
            if self._log_folder != Path():
                shutil.rmtree(self._log_folder, ignore_errors=True)

    def _new_fleet(self, record: Path | None, log: Path) -> Fleet:
        replicas = place(self._job.engine).replicas
        seen = {replica.environment.get("CUDA_VISIBLE_DEVICES", "") for replica in replicas}
        self.gpus = len({gpu for group in seen for gpu in group.split(",")})
        return Fleet(replicas, record=record, log=log, care=self._care)

    def _tell_steps(self) -> None:
        if self._steps.taken:
            told = ", ".join(map(str, self._steps.taken))
            self._care.tell(f"an earlier start ran out of memory and came down to {told}")

    def _relimit(self) -> None:
        """An engine was started again, maybe with fewer seats."""
        limits = self._fleet.limits if self._fleet is not None else None
        if limits is not None:
            self._feed.relimit(limits)
            self.limits = limits

    def _receive(self) -> None:
        assert self._fleet is not None
        try:
            with self.receiving:
                for outcomes in self._fleet.outcomes():
                    if len(outcomes):
                        with self.writing:
                            self._take(outcomes)
        except BaseException as error:
            self.error = error

    def _take(self, outcomes: Outcomes) -> None:
        began = time.monotonic()
        self._put(outcomes)
        self.written_row_s += (time.monotonic() - began) * len(outcomes)
        prompt, cached, output = outcomes.tokens.sum(axis=1, dtype=int).tolist()
        self._feed.answered(
            len(outcomes),
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
        )

    def see_gauges(self) -> None:
        """What engines have to say is told once; one may find that it can work on more rows than it said."""
        texts = [text for gauge in self.gauges for text in gauge.notes]
        for text in texts[self._num_notes :]:
            self._care.tell(text)
        self._num_notes = max(self._num_notes, len(texts))
        self._filling = _filling(self.gauges) or self._filling
        seats = sum(gauge.seats for gauge in self.gauges)
        if self.limits is not None and seats > self.limits.seats:
            self.limits = msgspec.structs.replace(self.limits, seats=seats)
            self._feed.relimit(self.limits)


def _filling(gauges: Iterable[Gauge]) -> str:
    """How much of the engines' work was filling, in words; empty where they fill nothing up."""
    shares = [gauge.filled_share for gauge in gauges if gauge.filled_share]
    if not shares:
        return ""
    share = sum(shares) / len(shares)
    return f"padding: {share:.1%} of the tokens computed filled texts up to the longest of their step"


def _known_outputs(batch: Prompts) -> int:
    """Tokens that the rows will generate where all go on to `max_tokens`; 0 where that is not known."""
    if not all(sampling.ignore_eos for sampling in batch.samplings):
        return 0
    return sum(batch.max_tokens)
