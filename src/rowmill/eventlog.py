"""Events -> `events/WORKER.jsonl`: what report, trace and status read afterwards.

Promises: one JSON object a line, `at` in seconds since the worker began; no row text.
Knows nothing of: who listens.
Memory: where a store cannot be appended to, the events of `OBJECT_S`.
"""

from __future__ import annotations

import contextlib
import time

import msgspec

from rowmill import rundir
from rowmill.storage import AlreadyThere, Appender, Storage

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

    def add(self, event: msgspec.Struct) -> None:
        """Write an event down."""
        line = msgspec.json.encode(
            {
                "at": round(time.monotonic() - self._began, 3),
                "event": type(event).__name__.lower(),
                **msgspec.structs.asdict(event),
            }
        )
        if not self._storage.can_append:
            self._lines.append(line + b"\n")
            if time.monotonic() >= self._due_at:
                self._put()
            return
        if self._appender is None:
            self._appender = self._open()
        self._appender.write(line + b"\n")

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
