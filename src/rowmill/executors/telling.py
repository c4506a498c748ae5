"""Counts -> events: how far a run is, and how it stands, for whoever listens and for its event file.

Promises: the event file has one writer; what is told from other threads is kept until it writes.
Knows nothing of: what rows say.
"""

from __future__ import annotations

import datetime
import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from rowmill.diagnose import verdict
from rowmill.engines.channel import Gauge
from rowmill.eventlog import EventLog
from rowmill.events import Began, EngineReady, Listener, Note, Progress, Verdict
from rowmill.executors.asking import Asking
from rowmill.executors.claims import Claims
from rowmill.executors.money import Money
from rowmill.executors.reasons import versions
from rowmill.feed import Feed
from rowmill.flow import Buffer, Clock
from rowmill.forecast.left import Work
from rowmill.journal import Counts
from rowmill.opentasks import OpenTasks
from rowmill.pipeline import Stations, Valid, Window
from rowmill.storage import Storage
from rowmill.telemetry import Sample, Sampler, Stage, cores, memory_bytes

NO_WORK, NO_MONEY = Work(), Money()
MOMENT_S = 1.0
"""So often listeners are told how far a run is, and its stations are looked at."""


class Stand(msgspec.Struct):
    """The parts of a worker that its samples are made of."""

    stations: Stations
    valid: Buffer[Valid]
    planned: Buffer[Window]
    feed: Feed
    asking: Asking
    tasks: OpenTasks
    claims: Claims
    keeping: Clock

    def depths(self, entered: int) -> dict[str, float]:
        """What goes up and down, now; `entered` rows were taken out of `planned` so far."""
        gauges, feed = self.asking.gauges, self.feed
        told = _engine_queues(gauges)
        waiting = told.get("engine_waiting", max(0, feed.in_flight - feed.seats))
        return {
            "in_flight": feed.in_flight,
            "in_flight_target": feed.target_rows,
            "waiting/measure": max(0, self.stations.num_validated - self.stations.num_read),
            "waiting/feed": max(0, self.stations.num_read - entered),
            "waiting/engine": waiting,
            "waiting/copies": self.tasks.num_waiting_copies,
            **{
                f"engine/{name}": told[f"engine_{name}"]
                for name in ("running", "waiting", "kv_use")
                if told
            },
        }

    def sums(self) -> dict[str, Any]:
        """What counts up: fields of `Sample`."""
        self.feed.pass_time()
        feed, counts = self.feed, self.tasks.counts
        return {
            "prompt_tokens": counts.prompt_tokens,
            "cached_tokens": counts.cached_tokens,
            "output_tokens": counts.output_tokens,
            "rows_read": self.stations.num_validated,
            "rows_planned": self.stations.num_read,
            "rows_fed": feed.sent_rows,
            "rows_answered": feed.answered_rows,
            "seats": feed.seats,
            "row_s": round(feed.row_s, 3),
            "written_row_s": round(self.asking.written_row_s, 3),
            "active_s": round(feed.active_s, 3),
            "empty_s": round(feed.empty_s, 3),
            "tail_s": round(feed.tail_s, 3),
            "tail_empty_s": round(feed.tail_empty_s, 3),
            "stages": self._stages(),
            "engine": _engine_sums(self.asking.gauges),
        }

    def _stages(self) -> dict[str, Stage]:
        stations, asking = self.stations, self.asking
        read_starved, read_blocked = (
            self.claims.starved.seconds,
            self.claims.blocked.seconds + self.valid.blocked.seconds,
        )
        return {
            "read": _stage(
                self.valid.filled.seconds - read_starved - read_blocked,
                read_starved,
                read_blocked,
            ),
            "measure": _stage(
                stations.measuring.seconds,
                self.valid.starved.seconds,
                self.planned.blocked.seconds,
            ),
            "plan": _stage(stations.planning.seconds),
            "feed": _stage(
                asking.sending.seconds, self.planned.starved.seconds, self.feed.blocked_s
            ),
            "write": _stage(
                asking.writing.seconds, asking.receiving.seconds - asking.writing.seconds
            ),
            "keep": _stage(self.keeping.seconds),
        }


class Teller:
    """Tells listeners and the event file how a worker stands. Notes may come from any thread, all else from one."""

    def __init__(self, storage: Storage, name: str, listen: Listener | None) -> None:
        self._log, self._listen = EventLog(storage, name), listen
        self._sampler = Sampler()
        self._notes: deque[Note] = deque()
        self._began = self._told_at = time.monotonic()
        self._ready: EngineReady | None = None
        self._start: Began | None = None
        self._samples: list[tuple[float, Sample]] = []

    def begin(self) -> None:
        """Say that this worker begins; before that nothing is written."""
        passed_s = time.monotonic() - self._began
        began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=passed_s)
        self._start = Began(
            time=began.isoformat(timespec="milliseconds"),
            host=socket.gethostname(),
            pid=os.getpid(),
            cores=cores(),
            memory_bytes=memory_bytes(),
            version=versions().get("rowmill", ""),
            tokenizer_threads=_tokenizer_threads(),
        )
        self._log.add(self._start)

    def verdict(self) -> Verdict | None:
        """What this worker waited for most, so far."""
        return verdict(self._samples, engine=self._ready, began=self._start)

    def note(self, text: str) -> None:
        """Tell people; from any thread."""
        note = Note(text=text)
        self._notes.append(note)
        if self._listen is not None:
            self._listen(note)

    def hear(self, event: msgspec.Struct) -> float:
        """Tell everybody. Returns: when, in seconds since this worker began, as it is written down."""
        at = self._log.add(event)
        if self._listen is not None:
            self._listen(event)
        return at

    def is_moment(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._told_at >= MOMENT_S

    def tell(self, progress: Progress, stand: Stand, *, entered: int) -> None:
        """A moment: listeners hear of the progress, the file gets a sample where one is due."""
        self._told_at = time.monotonic()
        if self._listen is not None:
            self._listen(progress)
        self._sampler.look(stand.depths(entered))
        if self._sampler.is_due:
            self._sample(progress, stand)

    def end(self, progress: Progress, stand: Stand, *, entered: int) -> None:
        """The last sample."""
        self.tell_happened(stand)
        self._sampler.look(stand.depths(entered))
        self._sample(progress, stand)
        self._sampler.close()

    def close(self) -> None:
        """Nothing more will be told."""
        self._log.close()

    def tell_happened(self, stand: Stand) -> None:
        """Tell what happened since the last call: notes, tasks, an engine that is open."""
        while self._notes:
            self._log.add(self._notes.popleft())
        ready = self._engine(stand.asking)
        if ready is not None and ready != self._ready:
            self._ready = ready
            self.hear(ready)
        while stand.tasks.happened:
            self.hear(stand.tasks.happened.popleft())

    def _engine(self, asking: Asking) -> EngineReady | None:
        limits = asking.limits
        if limits is None:
            return None
        return EngineReady(
            name=asking.name,
            about=limits.about,
            start_s=round(asking.start_s, 3),
            seats=limits.seats,
            replicas=limits.replicas,
            step_tokens=limits.step_tokens,
            kv_tokens=limits.kv_tokens,
            gpus=self._sampler.gpus.names(),
        )

    def _sample(self, progress: Progress, stand: Stand) -> None:
        counts = {
            name: getattr(progress, name)
            for name in (
                *("total", "resumed", "done", "ok", "failed"),
                *("work_done", "work_left", "cost", "hour_price", "cost_left"),
            )
        }
        seconds = round(progress.seconds, 3)
        sample = self._sampler.take({**stand.sums(), **counts, "seconds": seconds})
        sample = _with_means(sample, self._samples[-1][1] if self._samples else Sample())
        # With the time that the file has: whoever reads it comes to the same verdict.
        self._samples.append((self.hear(sample), sample))


def _with_means(sample: Sample, before: Sample) -> Sample:
    """The depths that are known at each moment, by their sums."""
    passed_s = sample.active_s - before.active_s
    if passed_s <= 0:
        return sample
    writing = (sample.written_row_s - before.written_row_s) / passed_s
    return msgspec.structs.replace(
        sample,
        in_flight=round((sample.row_s - before.row_s) / passed_s, 2),
        waiting={**sample.waiting, "write": round(writing, 2)},
    )


def _tokenizer_threads() -> int:
    """What the tokenizers' library is told by the environment; 0 for nothing."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in (
        "false",
        "off",
        "no",
        "n",
        "f",
        "0",
    ):
        return 1
    said = os.environ.get("RAYON_NUM_THREADS") or os.environ.get("RAYON_RS_NUM_CPUS") or ""
    return int(said) if said.isdecimal() else 0


def _stage(worked_s: float, starved_s: float = 0.0, blocked_s: float = 0.0) -> Stage:
    return Stage(*(round(max(0.0, s), 3) for s in (worked_s, starved_s, blocked_s)))


def _engine_sums(gauges: Sequence[Gauge]) -> dict[str, float]:
    """What engines counted so far; what none of them counts is left out."""
    sums = {
        "preemptions": sum(g.preemptions for g in gauges),
        "steps": sum(g.steps for g in gauges),
        "retries": sum(sum(g.retries.values()) for g in gauges),
        "seats": sum(g.seats for g in gauges),
        "hit_rate": sum(g.hit_rate for g in gauges) / max(len(gauges), 1),
    }
    return {name: round(value, 4) for name, value in sums.items() if value}


def progress_event(
    resumed: Counts,
    new: Counts,
    *,
    total: int,
    seconds: float,
    queues: dict[str, float],
    work: Work = NO_WORK,
    money: Money = NO_MONEY,
) -> Progress:
    """How far the run is.

    Args:
        resumed: of outcomes that earlier starts wrote.
        new: of those of this start.
        queues: what waits before each station; `in_flight` is what the engine holds.
        work: what is left, by tokens.
        money: what it cost so far.
    """
    return Progress(
        done=resumed.done + new.done,
        ok=resumed.ok + new.ok,
        failed=resumed.failed + new.failed,
        total=total,
        in_flight=int(queues["in_flight"]),
        prompt_tokens=new.prompt_tokens,
        output_tokens=new.output_tokens,
        seconds=seconds,
        resumed=resumed.done,
        queues=queues,
        work_done=round(work.done),
        work_left=round(work.left),
        work_error=round(work.error),
        cost=round(money.so_far, 6),
        hour_price=money.an_hour,
        cost_left=round(money.of_tokens(work.prompt_tokens, work.output_tokens), 6),
    )


def queues(
    feed: Feed, gauges: Sequence[Gauge], *, planned_bytes: float, copies: int
) -> dict[str, float]:
    """What waits between stations: the fullest one names the bottleneck behind it."""
    return {
        "planned_bytes": int(planned_bytes),
        "copies_waiting": copies,
        "in_flight_target": feed.target_rows,
        "in_flight": feed.in_flight,
        "child_waiting_batches": sum(gauge.waiting for gauge in gauges),
        **_engine_queues(gauges),
    }


def _engine_queues(gauges: Sequence[Gauge]) -> dict[str, float]:
    """What engines say of their own queues and caches; empty where they say nothing. Shares are means over replicas."""
    told = [g for g in gauges if g.running or g.kv_use or g.preemptions]
    if not told:
        return {}
    return {
        "engine_running": sum(g.running for g in told),
        "engine_waiting": sum(g.waiting_rows for g in told),
        "engine_kv_use": sum(g.kv_use for g in told) / len(told),
        "engine_preemptions": sum(g.preemptions for g in told),
        "engine_hit_rate": sum(g.hit_rate for g in told) / len(told),
    }
