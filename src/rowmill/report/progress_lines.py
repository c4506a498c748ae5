"""Event files of runs of before, which had a `progress` line a second -> samples as runs write them now.

Promises: sums count up as in samples; lines are thinned out as samples are, so that a week is some thousand.
Knows nothing of: what becomes of them. To be deleted with the last run that has no samples.
Memory: the lines of one file.
"""

from __future__ import annotations

import contextlib

import msgspec

from rowmill import rundir
from rowmill.events import Progress
from rowmill.storage import NotThere, Storage
from rowmill.telemetry import Sample

PACE = 300.0
"""Lines are kept so that there are as many at each moment's pace since the beginning."""
PREFIX = "engine_"


class _Line(msgspec.Struct):
    at: float
    event: str


class _Seats(msgspec.Struct):
    """What the lines say of seats, summed up as samples have it."""

    at: float = 0.0
    empty_s: float = 0.0
    tail_s: float = 0.0
    tail_empty_s: float = 0.0

    def see(self, at: float, told: Progress) -> None:
        """Take a line in."""
        seconds, self.at = at - self.at, at
        target = told.queues.get("in_flight_target", 0.0)
        if not told.in_flight and not told.prompt_tokens:
            return  # the engine starts
        empty = max(0.0, 1 - told.in_flight / target) if target else 0.0
        is_tail = told.done + told.in_flight >= told.total and not told.queues.get(
            "planned_bytes"
        )
        self.empty_s += 0 if is_tail else seconds * empty
        self.tail_s += seconds if is_tail else 0
        self.tail_empty_s += seconds * empty if is_tail else 0


def samples_of_progress(storage: Storage, worker: str) -> list[tuple[float, Sample]]:
    """(seconds since the worker began, sample) of all its files, in order."""
    found: list[tuple[float, Sample]] = []
    seats, kept_at = _Seats(), -1.0
    last: tuple[float, Sample] | None = None
    for name in storage.list(rundir.events(worker).removesuffix(".jsonl")):
        known, _, number = (rundir.worker_of_events(name) or "").rpartition("-")
        if known != worker or not number.isdecimal():
            continue
        for at, told in _lines(storage, name):
            if told.workers:
                continue  # a sum over workers, who tell their own
            seats.see(at, told)
            last = (at, _sample(told, seats))
            if at - kept_at >= at / PACE:
                kept_at = at
                found.append(last)
    return found if last is None or last in found[-1:] else [*found, last]


def _lines(storage: Storage, name: str) -> list[tuple[float, Progress]]:
    found: list[tuple[float, Progress]] = []
    with contextlib.suppress(NotThere):
        for line in storage.read(name).splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                head = msgspec.json.decode(line, type=_Line)
                if head.event == "progress":
                    found.append((head.at, msgspec.json.decode(line, type=Progress)))
    return found


def _sample(told: Progress, seats: _Seats) -> Sample:
    queues = told.queues
    return Sample(
        seconds=told.seconds,
        total=told.total,
        resumed=told.resumed,
        done=told.done,
        ok=told.ok,
        failed=told.failed,
        prompt_tokens=told.prompt_tokens,
        output_tokens=told.output_tokens,
        in_flight=told.in_flight,
        in_flight_target=queues.get("in_flight_target", 0.0),
        empty_s=seats.empty_s,
        tail_s=seats.tail_s,
        tail_empty_s=seats.tail_empty_s,
        engine={
            key.removeprefix(PREFIX): value
            for key, value in queues.items()
            if key.startswith(PREFIX)
        },
    )
