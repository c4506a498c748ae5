"""Owner -> a note beside the output that says who owns it, for people and for other workers.

Promises: the same note for folders and object stores; an unreadable note is no note.
Knows nothing of: locks; whether the owner lives is not the note's to say.
Memory: one note.
"""

from __future__ import annotations

import contextlib
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
    machine: str = ""
    """The boot and the table of processes that `pid` is of; empty where the system does not say."""
    started: str = ""
    """When the process began, in the system's own count: a process id comes again."""


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
    pid = os.getpid()
    return Member(
        secrets.token_hex(4), pid, socket.gethostname(), since, _machine(), _started(pid)
    )


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


def has_died(member: Member) -> bool:
    """Whether the process is certainly gone: it ran on this boot, among the processes that can be seen from here.

    Unlike `is_gone` this does not trust a host's name, which containers may share.
    """
    if not member.machine or member.machine != _machine():
        return False
    return is_gone(msgspec.structs.replace(member, host=socket.gethostname())) or (
        _started(member.pid) != member.started
    )


def _machine() -> str:
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _started(pid: int) -> str:
    with contextlib.suppress(OSError):
        # Behind the name in parentheses, which may hold blanks, it is the 20th.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


_PF_EXITING = 0x4
_SIGKILL_BIT = 1 << 8
