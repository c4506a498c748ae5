"""Task -> epoch, or None: the lease of a task, kept alive by a counter.

Promises: at any epoch a task has one holder, and epochs only grow: names that carry the epoch
fence a holder that slept through a take-over.
Knows nothing of: what a task is made of, commits.
Memory: a small record for each task looked at.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.leases.heart import Heart
from rowmill.leases.note import current_note, in_use
from rowmill.leases.watch import Watch
from rowmill.storage import Storage

BEATS_A_LEASE = 5
"""Four beats in a row may come late before a lease looks dead."""


class Lease(msgspec.Struct, frozen=True):
    """What lies under a lease's name."""

    task: int
    epoch: int
    """Grows by one with every holder; 1 is the first."""
    worker: str
    """The holder's name, for people; empty where the lease was given back."""
    token: str
    """The holder's run."""
    nonce: str
    """One for each Leases object: two workers of one name are not taken for each other."""
    beat: int = 0


class _Held:
    """A lease of ours: what we wrote last, and when."""

    def __init__(self, lease: Lease, version: str, at: float) -> None:
        self.lease = lease
        self.version = version
        self.beaten_at = at
        self.is_lost = False


class Leases:
    """One worker's leases. As a context it beats on a thread of its own, and gives all back at the end."""

    def __init__(
        self,
        storage: Storage,
        *,
        worker: str,
        token: str,
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._worker = worker
        self._token = token
        self._lease_s = lease_s
        self._clock = clock
        self._nonce = secrets.token_hex(4)
        self._watch = Watch(lease_s=lease_s, clock=clock)
        self._held: dict[int, _Held] = {}
        # The beating thread and the working one write the same leases.
        self._lock = threading.RLock()
        self._heart: Heart | None = None

    def claim(self, task: int) -> int | None:
        """Hold the task, if it is free or its holder is dead.

        A holder is dead where its lease stood still for `lease_s` by our clock, looks at it being those
        of this method; or where it is of another run than the one that owns the output now.

        Returns: the epoch to write under, the same one while held; None where another holds the task.
        Raises: OutputInUse where our own run no longer owns the output; StorageError.
        """
        with self._lock:
            held = self._held.get(task)
            if held is not None and not held.is_lost:
                return held.lease.epoch
            name = rundir.lease(task)
            found = self._storage.read_versioned(name)
            old = self._parse(name, found[0]) if found else None
            version = found[1] if found else ""
            if old is not None and not self._may_take(old, version):
                return None
            epoch = old.epoch + 1 if old else 1
            lease = Lease(task, epoch, self._worker, self._token, self._nonce)
            return epoch if self._take(lease, version) else None

    def beat(self) -> None:
        """Tell that this worker lives: move the counter of every lease held."""
        with self._lock:
            tasks = list(self._held)
        for task in tasks:
            # Not one lock for all: a claim need not wait for a hundred beats.
            with self._lock:
                self._beat_one(task)

    def is_lost(self, task: int) -> bool:
        """Whether another took the task over, or it was never held; certain at the moment of asking.

        Where the last beat is older than `lease_s`, a beat is made first.

        Raises: StorageError where that beat cannot be written.
        """
        with self._lock:
            held = self._held.get(task)
            if held is None:
                return True
            if not held.is_lost and self._clock() - held.beaten_at >= self._lease_s:
                self._beat_one(task)
            return held.is_lost

    def release(self, task: int) -> None:
        """Give the task back: the next claim need not wait. Its epoch stays, and is never used again."""
        with self._lock:
            held = self._held.pop(task, None)
            if held is None or held.is_lost:
                return
            old = held.lease
            free = Lease(task, old.epoch, "", self._token, self._nonce, old.beat + 1)
            # Lost at the last moment: then it is no longer ours to free.
            content = msgspec.json.encode(free)
            self._storage.swap(rundir.lease(task), content, held.version, durable=False)

    def __enter__(self) -> Self:
        self._heart = Heart(self._beat_or_wait, every_s=self._lease_s / BEATS_A_LEASE)
        self._heart.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._heart is not None:
            self._heart.stop()
        for task in list(self._held):
            # What cannot be given back stands still, and is taken over after `lease_s`.
            with contextlib.suppress(StorageError):
                self.release(task)

    def _may_take(self, lease: Lease, version: str) -> bool:
        if not lease.worker:
            return True
        if lease.token != self._token:
            note = current_note(self._storage)
            if note is not None and note.token != self._token:
                raise in_use(self._storage, note.members[0] if note.members else None)
            if note is not None:
                # We own the output, so the lease's run does not: it need not be waited for.
                return True
        return self._watch.stands_still(rundir.lease(lease.task), version)

    def _take(self, lease: Lease, version: str) -> bool:
        name = rundir.lease(lease.task)
        at = self._clock()
        new = self._write(name, lease, version)
        self._watch.forget(name)
        if new is None:
            return False
        self._held[lease.task] = _Held(lease, new, at)
        return True

    def _beat_one(self, task: int) -> None:
        held = self._held.get(task)
        if held is None or held.is_lost:
            return
        lease = msgspec.structs.replace(held.lease, beat=held.lease.beat + 1)
        # Before the write: others see the beat at the earliest now.
        at = self._clock()
        version = self._write(rundir.lease(task), lease, held.version)
        if version is None:
            held.is_lost = True
            return
        held.lease, held.version, held.beaten_at = lease, version, at

    def _write(self, name: str, lease: Lease, version: str) -> str | None:
        """Put the lease where `version` still is, or nothing where that is empty; None where we were late."""
        content = msgspec.json.encode(lease)
        # A power cut ends every holder too; an epoch it undoes cannot be confused: segments are create-only.
        if version:
            new = self._storage.swap(name, content, version, durable=False)
        else:
            self._storage.create(name, content, durable=False)
            new = None
        if new is not None:
            return new
        # A store may have written, lost its answer, and refused its own second try; the nonce tells.
        found = self._storage.read_versioned(name)
        return found[1] if found and found[0] == content else None

    def _beat_or_wait(self) -> None:
        try:
            self.beat()
        except StorageError:
            # The next beat tries again; `is_lost` meets the same error in the worker's own thread.
            return

    def _parse(self, name: str, content: bytes) -> Lease:
        try:
            return msgspec.json.decode(content, type=Lease)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            path = f"{self._storage.url.rstrip('/')}/{name}"
            raise StorageError(path=path, reason="is no lease of rowmill") from error
