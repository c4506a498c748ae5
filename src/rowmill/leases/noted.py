"""Object store -> its owner, by a note whose counter moves while a member of the run lives.

Promises: a note that moves is never taken over; one that stood still for `lease_s`, on the clock of
the one who looks, is, and one whose processes certainly died on this machine is at once.
A run that was taken over learns it at its next beat.
Knows nothing of: file locks.
Memory: one note.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.leases.heart import Heart
from rowmill.leases.note import Member, OwnerNote, has_died, in_use, parse_note, this_process
from rowmill.leases.watch import Watch
from rowmill.storage import Storage

BEATS_A_LEASE = 5
MOST_BETWEEN_BEATS_S = 2.0
"""So that a second start is refused within 5 s, however long the lease."""


class NotedOwner:
    """A membership in the run that the note names, kept alive by a thread."""

    def __init__(
        self, storage: Storage, member: Member, *, token: str, has_joined: bool, lease_s: float
    ) -> None:
        self.token = token
        self.has_joined = has_joined
        self._storage = storage
        self._member = member
        self._is_lost = False
        self._is_closed = False
        every_s = min(lease_s / BEATS_A_LEASE, MOST_BETWEEN_BEATS_S)
        self._heart = Heart(self._beat_or_wait, every_s=every_s)
        self._heart.start()

    def is_lost(self) -> bool:
        """True once a beat has found another run's note."""
        return self._is_lost

    def beat(self) -> None:
        """Move the note's counter."""
        self._change(lambda members: members)

    def close(self) -> None:
        """Leave the run; where nobody stays, the next start need not wait."""
        if self._is_closed:
            return
        self._is_closed = True
        self._heart.stop()
        self._change(lambda members: [m for m in members if m.id != self._member.id])

    def _change(self, change: Callable[[list[Member]], list[Member]]) -> None:
        while not self._is_lost:
            found = self._storage.read_versioned(rundir.OWNER_NOTE)
            note = parse_note(found[0]) if found else None
            if found is None or note is None or note.token != self.token:
                self._is_lost = True
                return
            new = OwnerNote(note.token, change(note.members), note.beat + 1)
            # Lost to another member: its change stays, ours is made upon it.
            if self._storage.swap(rundir.OWNER_NOTE, msgspec.json.encode(new), found[1]):
                return

    def _beat_or_wait(self) -> None:
        try:
            self.beat()
        except StorageError:
            # The next beat tries again; where writing stays impossible, writing results tells it.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def claim(
    storage: Storage,
    *,
    token: str | None,
    lease_s: float,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> NotedOwner:
    """Own the prefix, join its run, or raise OutputInUse; may watch a dead run's note for `lease_s`."""
    me = this_process()
    mine = OwnerNote(token or secrets.token_hex(8), [me])
    watch = Watch(lease_s=lease_s, clock=clock)
    first: str | None = None
    while True:
        found = storage.read_versioned(rundir.OWNER_NOTE)
        note = parse_note(found[0]) if found else None
        version = found[1] if found else ""
        others = note.members if note else []
        has_joined = bool(others) and note is not None and note.token == mine.token
        is_free = has_joined or all(map(has_died, others))
        if is_free or watch.stands_still(rundir.OWNER_NOTE, version):
            new = _entered(note, mine, has_joined=has_joined)
            if _put(storage, new, version):
                return NotedOwner(
                    storage, me, token=mine.token, has_joined=has_joined, lease_s=lease_s
                )
            continue
        first = first or version
        if version != first:
            raise in_use(storage, others[0])
        pause(min(lease_s / BEATS_A_LEASE, 0.25))


def _put(storage: Storage, note: OwnerNote, version: str) -> bool:
    content = msgspec.json.encode(note)
    if not version:
        return storage.create(rundir.OWNER_NOTE, content)
    return storage.swap(rundir.OWNER_NOTE, content, version) is not None


def _entered(note: OwnerNote | None, mine: OwnerNote, *, has_joined: bool) -> OwnerNote:
    """The note with this process in it; its counter never goes back."""
    beat = note.beat + 1 if note else 0
    members = [*note.members, *mine.members] if note and has_joined else mine.members
    return OwnerNote(mine.token, members, beat)
