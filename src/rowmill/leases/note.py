"""Owner -> a note beside the output that says who owns it, for people and for other workers.

Promises: the same note for folders and object stores; an unreadable note is no note.
Knows nothing of: locks; whether the owner lives is not the note's to say.
Memory: one note.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from rowmill import rundir
from rowmill.errors import OutputInUse
from rowmill.storage import NotThere, Storage


class Member(msgspec.Struct, frozen=True):
    """One process that works on a run."""

    id: str
    pid: int
    host: str
    since: str
    """UTC, ISO 8601, for people: never compared."""


class OwnerNote(msgspec.Struct, frozen=True):
    """Whose the output is."""

    token: str
    members: list[Member]
    """On a local disk the owner alone: those who joined hold a lock of their own."""
    beat: int = 0
    """Grows while a member lives; only where there are no file locks."""


def this_process() -> Member:
    """This process, as a member since now."""
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    return Member(secrets.token_hex(4), os.getpid(), socket.gethostname(), since)


def parse_note(content: bytes) -> OwnerNote | None:
    """The note in these bytes; None where it is cut or empty."""
    try:
        return msgspec.json.decode(content, type=OwnerNote)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def current_note(storage: Storage) -> OwnerNote | None:
    """Who owns the output, or did last; None where nobody ever did."""
    name = rundir.OWNER_LOCK if storage.can_append else rundir.OWNER_NOTE
    try:
        return parse_note(storage.read(name))
    except NotThere:
        return None


def in_use(storage: Storage, member: Member | None) -> OutputInUse:
    """The refusal that names the owner."""
    who = "a process that has not said who it is"
    if member is not None:
        who = f"process {member.pid} on `{member.host}` since {member.since}"
    return OutputInUse(
        reason=f"output `{storage.url}` is in use by {who};"
        " wait until it ends, stop it, or name another output"
    )


def is_gone(member: Member) -> bool:
    """Whether this machine can tell that the process has ended, or is on its way out."""
    if member.host != socket.gethostname():
        return False
    process = Path("/proc") / str(member.pid)
    try:
        stat = process.joinpath("stat").read_text()
        status = process.joinpath("status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        # Also where there is no /proc: the caller then only looks a little longer before it refuses.
        return True
    except OSError:
        return False
    # The name in parentheses may hold blanks; after it: state, ..., flags in the 7th place.
    fields = stat.rpartition(")")[2].split()
    is_exiting = bool(int(fields[6]) & _PF_EXITING)
    pending = next((line for line in status.splitlines() if line.startswith("ShdPnd:")), "")
    is_killed = bool(int(pending.partition(":")[2] or "0", 16) & _SIGKILL_BIT)
    return fields[0] in "ZX" or is_exiting or is_killed


_PF_EXITING = 0x4
_SIGKILL_BIT = 1 << 8
