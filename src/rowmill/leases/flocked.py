"""Local folder -> its owner, by file locks that end with the process.

Promises: a lock never outlives its process, whatever process id or host its file names;
it is passed on neither to programs that are started nor to forked children.
Knows nothing of: heartbeats; there are none here.
Memory: one note.

`leases/owner.lock` is held exclusively by the first process of a run, for life. `leases/workers.lock` is shared
by those that joined it. A new run needs the first, and for a moment the second alone:
then nobody of the old run is left. The token is written while both are held.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from rowmill import rundir
from rowmill.errors import BadOutput, StorageError
from rowmill.leases.note import (
    Member,
    OwnerNote,
    current_note,
    in_use,
    is_gone,
    this_process,
)
from rowmill.storage import LocalStorage, NotThere
from rowmill.storage.files import take_lock, write_all
from rowmill.storage.local import told

PATIENCE_S = 3.0
"""How long a lock may outlive its owner's death: a killed process of much memory takes a while to end."""
LOOK_AGAIN_S = 0.01


class FlockedOwner:
    """A lock held for as long as it is open."""

    def __init__(
        self, path: Path, fd: int, *, token: str, has_joined: bool, is_named: bool
    ) -> None:
        self.token = token
        self.has_joined = has_joined
        self._is_named = is_named
        self._path = path
        self._fd = fd
        # A forked child shares the lock, and would keep it after our death.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _drop_if_alive(mine))

    def is_lost(self) -> bool:
        """True where the lock's file was removed: another may now hold one of the same name."""
        try:
            return not os.path.samestat(os.fstat(self._fd), self._path.stat())
        except OSError:
            return True

    def close(self) -> None:
        """Let go of the lock; the one that the note names takes its name out of it."""
        if self._fd >= 0 and self._is_named:
            # So that the next owner's rivals are not told our name before it has written its own.
            with contextlib.suppress(StorageError):
                _write_note(self._path, self._fd, OwnerNote(self.token, []))
        self.drop()

    def drop(self) -> None:
        """Close this process's descriptor and change nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def claim(storage: LocalStorage, *, token: str | None) -> FlockedOwner:
    """Own the folder, join its run, or raise OutputInUse."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        fd = _try_lock(storage, rundir.OWNER_LOCK, fcntl.LOCK_EX)
        if fd is not None:
            return _lead(storage, fd, token)
        note = current_note(storage)
        holder = note.members[0] if note and note.members else None
        if note and holder and not is_gone(holder):
            return _join(storage, note, token)
        # Not written yet, or of a process that is dying: its lock is about to change hands.
        if time.monotonic() > give_up_at:
            raise in_use(storage, holder)
        time.sleep(LOOK_AGAIN_S)


def _lead(storage: LocalStorage, fd: int, token: str | None) -> FlockedOwner:
    path = storage.path(rundir.OWNER_LOCK)
    try:
        old = current_note(storage)
        alone = _try_lock(storage, rundir.WORKERS_LOCK, fcntl.LOCK_EX)
        try:
            # Workers of a run whose first process died still count, and are joined by their like.
            if alone is None and (old is None or old.token != token):
                raise in_use(storage, _last_worker(storage))
            note = OwnerNote(token or secrets.token_hex(8), [this_process()])
            _write_note(path, fd, note)
        finally:
            if alone is not None:
                os.close(alone)
    except BaseException:
        os.close(fd)
        raise
    return FlockedOwner(path, fd, token=note.token, has_joined=alone is None, is_named=True)


def _join(storage: LocalStorage, note: OwnerNote, token: str | None) -> FlockedOwner:
    if note.token != token:
        raise in_use(storage, note.members[0])
    give_up_at = time.monotonic() + PATIENCE_S
    while (fd := _try_lock(storage, rundir.WORKERS_LOCK, fcntl.LOCK_SH)) is None:
        if time.monotonic() > give_up_at:
            raise in_use(storage, note.members[0])
        time.sleep(LOOK_AGAIN_S)
    # While this is held no new run can write its token; before, one could have.
    now = current_note(storage)
    if now is None or now.token != token:
        os.close(fd)
        raise in_use(storage, now.members[0] if now and now.members else None)
    path = storage.path(rundir.WORKERS_LOCK)
    with _told(path):
        os.lseek(fd, 0, os.SEEK_END)
        write_all(fd, msgspec.json.encode(this_process()) + b"\n")
    return FlockedOwner(path, fd, token=now.token, has_joined=True, is_named=False)


def _try_lock(storage: LocalStorage, name: str, mode: int) -> int | None:
    path = storage.path(name)
    try:
        return take_lock(path, mode)
    except OSError as error:
        # Also ENOLCK and the like, of file systems without locks.
        reason = (
            f"output `{storage.url}`: no lock to be had on `{path}`: {os.strerror(error.errno or 0)};"
            " name a folder that this user can write, on a file system with file locks"
        )
        raise BadOutput(reason=reason) from error


def _write_note(path: Path, fd: int, note: OwnerNote) -> None:
    """In place: a new file of this name would not carry the lock."""
    with _told(path):
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        write_all(fd, msgspec.json.encode(note))
        os.fsync(fd)


def _last_worker(storage: LocalStorage) -> Member | None:
    """The living worker that joined last, as far as this machine can tell."""
    with contextlib.suppress(NotThere):
        for line in reversed(storage.read(rundir.WORKERS_LOCK).splitlines()):
            with contextlib.suppress(msgspec.DecodeError):
                member = msgspec.json.decode(line, type=Member)
                if not is_gone(member):
                    return member
    return None


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise told(path, error) from error


def _drop_if_alive(owner: weakref.ref[FlockedOwner]) -> None:
    alive = owner()
    if alive is not None:
        alive.drop()
