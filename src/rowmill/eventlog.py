"""Events -> `events/WORKER.jsonl`: what report, trace and status read afterwards.

Promises: one JSON object a line, `at` in seconds since the worker began; no row text.
Knows nothing of: who listens.
Memory: where a store cannot be appended to, the events until `close`.
"""

from __future__ import annotations

import time

import msgspec

from rowmill import rundir
from rowmill.storage import AlreadyThere, Appender, Storage


class EventLog:
    """The event file of one worker."""

    def __init__(self, storage: Storage, worker: str) -> None:
        self._storage, self._worker = storage, worker
        self._began = time.monotonic()
        self._appender: Appender | None = None
        self._lines: list[bytes] = []

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
            return
        if self._appender is None:
            self._appender = self._open()
        self._appender.write(line + b"\n")

    def close(self) -> None:
        """End the file."""
        if self._appender is not None:
            self._appender.close()
        elif self._lines:
            self._storage.replace(rundir.events(self._worker), b"".join(self._lines))

    def _open(self) -> Appender:
        """A file of our own: a process id comes again, an event file is never reopened."""
        number = 0
        while True:
            try:
                return self._storage.appender(rundir.events(f"{self._worker}-{number}"))
            except AlreadyThere:
                number += 1
