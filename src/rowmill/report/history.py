"""Events of all workers -> who worked when: starts of workers on one axis, and their samples in order.

The axis is time worked: where nobody worked, as between a kill and the resume, it stands still.
Promises: a start has its place by the wall clock it wrote down; one that wrote none (runs of before) by the last commit
it made, else by the start of the run.
Knows nothing of: plots, outcomes.
Memory: the events of one worker; of each start, what it said of itself.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime
from collections.abc import Iterator

import msgspec

from rowmill.eventlog import WorkerEvents, each_worker
from rowmill.events import Began, EngineReady, Note, Planned, Published, Summary, Verdict
from rowmill.report.progress_lines import samples_of_progress
from rowmill.report.run import View
from rowmill.report.verdicts import worker_verdict
from rowmill.storage import Storage
from rowmill.telemetry import Sample

Samples = list[tuple[float, Sample]]
"""(seconds since its worker began, sample)."""

LEAST_GAP_S = 10.0
"""Shorter pauses between starts are not told."""
MAX_NOTES = 200


class Start(msgspec.Struct, kw_only=True):
    """One start of one worker."""

    worker: str
    began_at: float
    """Seconds since 1970."""
    seconds: float
    """From its beginning to the last thing it wrote down."""
    began: Began | None = None
    planned: Planned | None = None
    ready: EngineReady | None = None
    published: Published | None = None
    summary: Summary | None = None
    last: Sample | None = None
    verdict: Verdict | None = None
    """What it waited for most."""
    notes: list[tuple[float, str]] = []
    """(seconds since it began, text)."""

    @property
    def ended_at(self) -> float:
        """Seconds since 1970."""
        return self.began_at + self.seconds

    @property
    def num_rows(self) -> int:
        """Rows that got their outcome in it."""
        return self.last.done - self.last.resumed if self.last is not None else 0

    @property
    def engine_start_s(self) -> float:
        """How long its engine took to start; of runs of before, by what its clock left out."""
        if self.ready is not None:
            return self.ready.start_s
        return max(0.0, self.seconds - self.last.seconds) if self.last is not None else 0.0


class Pause(msgspec.Struct, frozen=True):
    """A time in which nobody worked."""

    at: float
    """On the axis."""
    seconds: float


class History(msgspec.Struct, frozen=True):
    """All starts of a run."""

    starts: list[Start]
    """By their beginning."""
    stretches: list[tuple[float, float]]
    """(from, to) in which somebody worked, seconds since 1970."""

    @staticmethod
    def of(starts: list[Start]) -> History:
        """All of them, in any order."""
        ordered = sorted(starts, key=lambda start: start.began_at)
        return History(ordered, _united(ordered))

    @property
    def seconds(self) -> float:
        """In which somebody worked: the length of the axis."""
        return sum(stop - start for start, stop in self.stretches)

    @property
    def worker_seconds(self) -> float:
        """Of all workers together: what is paid for."""
        return sum(start.seconds for start in self.starts)

    def axis_of(self, moment: float) -> float:
        """Where a moment (seconds since 1970) lies on the axis of time worked."""
        at = bisect.bisect_right(self.stretches, (moment, float("inf")))
        before = sum(stop - start for start, stop in self.stretches[: max(0, at - 1)])
        if not at:
            return 0.0
        start, stop = self.stretches[at - 1]
        return before + min(moment, stop) - start

    def pauses(self) -> list[Pause]:
        """Times between starts that are worth telling."""
        found, worked = [], 0.0
        for (start, stop), (later, _) in zip(self.stretches, self.stretches[1:], strict=False):
            worked += stop - start
            if later - stop >= LEAST_GAP_S:
                found.append(Pause(worked, later - stop))
        return found

    def notes(self) -> list[tuple[float, str]]:
        """(seconds on the axis, text) of what was told, in order; of very many, the last ones."""
        told = [
            (self.axis_of(start.began_at + at), text)
            for start in self.starts
            for at, text in start.notes
        ]
        return sorted(told)[-MAX_NOTES:]


def history_of(view: View) -> History:
    """Who worked on a run, and when; without a start where nothing is written of it."""
    anchors = _last_commits(view)
    begun = _moment_of(view.record.started)
    starts = []
    for worker in each_worker(view.storage):
        samples = _samples(view.storage, worker)
        found = _start_of(worker, samples)
        if not found.began_at:
            known = anchors.get(worker.worker)
            found.began_at = begun if known is None else known - found.seconds
        starts.append(found)
    return History.of(starts)


def each_samples(view: View, history: History) -> Iterator[tuple[Start, Samples]]:
    """Samples of each start; read anew, one worker at a time."""
    known = {
        (start.worker, start.began and start.began.time): start for start in history.starts
    }
    for worker in each_worker(view.storage):
        began = worker.last(Began)
        start = known.get((worker.worker, began and began.time))
        if start is not None:  # else it began just now
            yield start, _samples(view.storage, worker)


def _samples(storage: Storage, worker: WorkerEvents) -> Samples:
    return worker.of(Sample) or samples_of_progress(storage, worker.worker)


def _start_of(worker: WorkerEvents, samples: Samples) -> Start:
    began = worker.last(Began)
    moments = [m.at for m in worker.moments[-1:]] + [at for at, _ in samples[-1:]]
    return Start(
        worker=worker.worker,
        began_at=_moment_of(began.time) if began is not None else 0.0,
        seconds=max(moments, default=0.0),
        began=began,
        planned=worker.last(Planned),
        ready=worker.last(EngineReady),
        published=worker.last(Published),
        summary=worker.last(Summary),
        last=samples[-1][1] if samples else None,
        verdict=worker_verdict(worker),
        notes=[(at, note.text) for at, note in worker.of(Note)][-MAX_NOTES:],
    )


def _last_commits(view: View) -> dict[str, float]:
    """Wall clock of the last commit of each worker."""
    found: dict[str, float] = {}
    for commit in view.commits.values():
        moment = _moment_of(commit.finished)
        found[commit.worker] = max(found.get(commit.worker, 0.0), moment)
    return found


def _moment_of(text: str) -> float:
    with contextlib.suppress(ValueError):
        return datetime.datetime.fromisoformat(text).timestamp()
    return 0.0


def _united(starts: list[Start]) -> list[tuple[float, float]]:
    united: list[tuple[float, float]] = []
    for start in starts:
        if united and start.began_at <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], start.ended_at))
        else:
            united.append((start.began_at, start.ended_at))
    return united
