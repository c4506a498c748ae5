"""A run's commits as they come -> a vector store, in a process of its own.

Promises: it ends with its parent; it waits for no store longer than the job allows; what it says is one JSON object a line.
Knows nothing of: engines, publishing.
Memory: one task.

The parent writes the request, and at the end one word: `finish` (no more commits will come: load all that are left, build
the index) or `leave` (other workers go on: load what is this worker's own).
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import RowmillError
from rowmill.flow import die_with_parent
from rowmill.journal import read_commit
from rowmill.load.loader import Loader, Total
from rowmill.record import read_run
from rowmill.storage import Storage, open_storage

POLL_S, REMOTE_POLL_S = 0.25, 2.0
FINISH, LEAVE = "finish", "leave"


class Request(msgspec.Struct, frozen=True):
    """What the process is asked."""

    url: str
    job: dict[str, Any]
    worker: str = ""
    """Until the end, only commits of this worker are loaded; empty: all."""


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the process says."""

    note: str = ""
    failed: str = ""
    total: Total | None = None


class Gone(Exception):
    """The parent is."""


class Words:
    """What the parent says, a line at a time."""

    def __init__(self, file: int) -> None:
        self._file, self._held = file, b""

    def wait(self, seconds: float) -> str:
        """The next line; empty where none came in time. Raises: Gone."""
        while b"\n" not in self._held:
            if not select.select([self._file], [], [], seconds)[0]:
                return ""
            piece = os.read(self._file, 1 << 16)
            if not piece:
                raise Gone
            self._held += piece
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()


def say(said: Said) -> None:
    """Tell the parent."""
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


def follow(storage: Storage, request: Request, words: Words) -> Total:
    """Load commits as they come, until the parent says that no more will."""
    poll_s = POLL_S if storage.can_append else REMOTE_POLL_S
    word = ""
    while not word and storage.size(rundir.RUN) is None:
        word = words.wait(poll_s)
    run = read_run(storage)
    if run is None:
        return Total(0, 0, 0, [])
    job = Job.model_validate(request.job)
    loader = Loader(storage, run, job, tell=lambda text: say(Said(note=text)))
    mine = _Mine(storage, request.worker)
    with contextlib.closing(loader):
        loader.check()
        while not word:
            _load(loader, mine)
            word = words.wait(poll_s)
        if word == LEAVE:
            _load(loader, mine)
            return loader.total()
        _load(loader, lambda _: True)
        return loader.finish()


def _load(loader: Loader, is_mine: Callable[[str], bool]) -> None:
    while names := [name for name in loader.pending() if is_mine(name)]:
        for name in names:
            loader.load(name)


class _Mine:
    """Callable: whether a commit is one of a worker's own; each is looked at once."""

    def __init__(self, storage: Storage, worker: str) -> None:
        self._storage, self._worker = storage, worker
        self._others: set[str] = set()

    def __call__(self, name: str) -> bool:
        """See the class."""
        is_unknown = bool(self._worker) and name not in self._others
        if is_unknown and read_commit(self._storage, name).worker != self._worker:
            self._others.add(name)
        return name not in self._others


def _main() -> int:
    die_with_parent()
    words = Words(sys.stdin.fileno())
    try:
        line = ""
        while not line:
            line = words.wait(60.0)
        request = msgspec.json.decode(line, type=Request)
        say(Said(total=follow(open_storage(request.url), request, words)))
    except Gone:
        return 3
    except RowmillError as error:
        say(Said(failed=str(error)))
        return 3
    except Exception as error:  # the last place where it can be told
        say(Said(failed=f"a bug of rowmill: {type(error).__name__}: {error}"))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(_main())
