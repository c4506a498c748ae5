"""Events -> `events/WORKER.jsonl` and back: what report, watch and status read.

Promises: one JSON object a line, `at` in seconds since the worker began; no row text; a line that its writer did not
finish is passed over, and so is an event that this version does not know.
Knows nothing of: who listens.
Memory: where a store cannot be appended to, the events of `OBJECT_S`. Of reading: all events of a run.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from rowmill import rundir
from rowmill.events import (
    Began,
    EngineReady,
    Note,
    Planned,
    Published,
    Summary,
    TaskBegan,
    TaskEnded,
)
from rowmill.storage import AlreadyThere, Appender, NotThere, Storage
from rowmill.telemetry import Sample

T = TypeVar("T")
_NUMBERED = re.compile(r"(.*)-(\d+)", re.DOTALL)
OBJECT_S = 60.0
"""Where a store cannot be appended to, the events of so long are an object; the first ones go at once."""


class EventLog:
    """The event file of one worker; several, one after the other, where they cannot be appended to."""

    def __init__(self, storage: Storage, worker: str) -> None:
        self._storage, self._worker = storage, worker
        self._began = time.monotonic()
        self._appender: Appender | None = None
        self._lines: list[bytes] = []
        self._number = 0
        """Of the next file."""
        self._due_at = self._began

    def add(self, event: msgspec.Struct) -> float:
        """Write an event down. Returns: when, in seconds since the worker began, as it is written."""
        at = round(time.monotonic() - self._began, 3)
        line = msgspec.json.encode(
            {
                "at": at,
                "event": type(event).__name__.lower(),
                **msgspec.to_builtins(event),
            }
        )
        if not self._storage.can_append:
            self._lines.append(line + b"\n")
            if time.monotonic() >= self._due_at:
                self._put()
            return at
        if self._appender is None:
            self._appender = self._open()
        self._appender.write(line + b"\n")
        return at

    def close(self) -> None:
        """End the file."""
        if self._appender is not None:
            self._appender.close()
        elif self._lines:
            self._put()

    def _put(self) -> None:
        """The events so far as an object of their own; a process id comes again, so what is there stays."""
        content = b"".join(self._lines)
        while not self._storage.create(self._next_name(), content, durable=False):
            pass
        self._lines.clear()
        self._due_at = time.monotonic() + OBJECT_S

    def _open(self) -> Appender:
        """A file of our own: a process id comes again, an event file is never reopened."""
        while True:
            with contextlib.suppress(AlreadyThere):
                return self._storage.appender(self._next_name())

    def _next_name(self) -> str:
        self._number += 1
        return rundir.events(f"{self._worker}-{self._number - 1}")


class Moment(msgspec.Struct, frozen=True):
    """An event, and when it was."""

    at: float
    """Seconds since its worker began."""
    event: Any
    """One of `KNOWN`."""


class WorkerEvents(msgspec.Struct):
    """All that one worker wrote down in one start, in order."""

    worker: str
    moments: list[Moment] = []

    def of(self, kind: type[T]) -> list[tuple[float, T]]:
        """(seconds since it began, event) of one kind."""
        return [(m.at, m.event) for m in self.moments if isinstance(m.event, kind)]

    def last(self, kind: type[T]) -> T | None:
        """The last one of a kind; None where there is none."""
        found = self.of(kind)
        return found[-1][1] if found else None


KNOWN: dict[str, type[msgspec.Struct]] = {
    kind.__name__.lower(): kind
    for kind in (
        *(Began, Planned, EngineReady, Sample, Note),
        *(TaskBegan, TaskEnded, Published, Summary),
    )
}
"""Name in the file -> record."""


def read_workers(storage: Storage, *, most_bytes: int = 0) -> list[WorkerEvents]:
    """What all workers of a run wrote down, one entry a start, by the wall clock at which they began.

    Args:
        most_bytes: of a longer file, only so much of its beginning and of its end is read; 0: all.
    """
    return sorted(
        each_worker(storage, most_bytes=most_bytes),
        key=lambda one: began.time if (began := one.last(Began)) else "",
    )


def each_worker(storage: Storage, *, most_bytes: int = 0) -> Iterator[WorkerEvents]:
    """The same one by one, as their files are listed: for runs of many workers, which are much to hold."""
    for worker, names in _files(storage):
        found: WorkerEvents | None = None
        for name in names:
            moments = list(_moments(_content(storage, name, most_bytes)))
            # Where a store cannot be appended to, a start has several files, and only the first one says that it begins.
            if found is not None and not _begins(moments):
                found.moments += moments
                continue
            if found is not None:
                yield found
            found = WorkerEvents(worker, moments)
        if found is not None:
            yield found


def _files(storage: Storage) -> Iterator[tuple[str, list[str]]]:
    """(worker, names of its files in order)."""
    numbered: dict[str, list[tuple[int, str]]] = {}
    for name in storage.list(rundir.EVENTS):
        match = _NUMBERED.fullmatch(rundir.worker_of_events(name) or "")
        if match is not None:
            numbered.setdefault(match[1], []).append((int(match[2]), name))
    for worker, names in numbered.items():
        yield worker, [name for _, name in sorted(names)]


def _begins(moments: list[Moment]) -> bool:
    return bool(moments) and isinstance(moments[0].event, Began)


def _content(storage: Storage, name: str, most_bytes: int) -> bytes:
    """Of a file, or of its two ends; the lines that are cut are no events."""
    try:
        size = storage.size(name) or 0
        if not most_bytes or size <= 2 * most_bytes:
            return storage.read(name)
        ends = [(0, most_bytes), (size - most_bytes, size)]
        return b"\n".join(storage.read_range(name, *end) for end in ends)
    except NotThere:
        return b""


def _moments(content: bytes) -> Iterator[Moment]:
    for line in content.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, KeyError, TypeError):
            tree = msgspec.json.decode(line)
            kind = KNOWN.get(tree["event"])
            if kind is not None:
                yield Moment(tree["at"], msgspec.convert(tree, kind))
