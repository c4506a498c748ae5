"""Events -> lines of JSON: what happened, when, for readers of logs.

Promises: one object a line, with `time` (ISO 8601, UTC), `level` and `event`; no row text.
Knows nothing of: who reads.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec

from rowmill.errors import StorageError
from rowmill.events import (
    EngineReady,
    Listener,
    Note,
    Planned,
    Published,
    Summary,
    TaskBegan,
    TaskEnded,
)

TOLD = (Planned, EngineReady, TaskBegan, TaskEnded, Note, Published, Summary)
STDERR = "-"


@contextlib.contextmanager
def logged(place: str) -> Iterator[Listener]:
    """A listener that writes to a file, which is appended to, or to standard error.

    Raises:
        StorageError: the file cannot be opened.
    """
    if place == STDERR:
        yield _writer(sys.stderr)
        return
    try:
        file = Path(place).expanduser().open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise StorageError(path=place, reason=error.strerror or str(error)) from error
    with file:
        yield _writer(file)


def _writer(file: TextIO) -> Listener:
    def hear(event: object) -> None:
        if isinstance(event, TOLD):
            # A listener never ends a run: a full disk under a log is told by those that write outcomes.
            with contextlib.suppress(OSError, ValueError):
                file.write(line_of(event))

    return hear


def line_of(event: msgspec.Struct) -> str:
    """The event as a line."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    fields = msgspec.to_builtins(event)
    head = {"time": now, "level": _level(event), "event": type(event).__name__.lower()}
    return msgspec.json.encode({**head, **fields}).decode() + "\n"


def _level(event: msgspec.Struct) -> str:
    match event:
        case TaskEnded(failed=failed) if failed:
            return "warning"
        case Summary(exit_code=code) if code:
            return "warning"
    return "info"
