"""A killed parent's engine -> found by its record and ended before the next start.

Promises: nothing is ended but the process group that the record's child leads:
its start time on this boot of this machine is compared, or the mark in its members' environment.
Knows nothing of: engines, channels, where records lie.
Memory: one record.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rowmill import errors

MARK = "ROWMILL_ENGINE_MARK"
"""Environment variable that every process of an engine inherits: tells them from others after the leader died."""


class EngineProcess(msgspec.Struct, frozen=True):
    """An engine child, known again after its parent died. It leads its own process group and session."""

    pid: int
    start_ticks: int
    """Start time of the process in clock ticks since boot."""
    boot_id: str
    host: str
    mark: str


def record_process(path: Path, pid: int, *, mark: str) -> None:
    """Write down a child just started, whole or not at all."""
    entry = EngineProcess(pid, _start_ticks(pid), _boot_id(), socket.gethostname(), mark)
    draft = path.with_name(path.name + ".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft.write_bytes(msgspec.json.encode(entry))
    draft.replace(path)


def end_orphan(path: Path, *, wait_s: float = 20.0) -> bool:
    """End the process group that the record at `path` tells of, wait until it is gone, remove the record.

    Returns:
        Whether something was alive and had to be ended.

    Raises:
        EngineDied: The group does not go away within `wait_s`.
    """
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=EngineProcess)
    except (FileNotFoundError, msgspec.DecodeError):
        return False
    if entry.host != socket.gethostname():
        return False
    was_alive = _lives(entry)
    if was_alive:
        end_group(entry.pid, wait_s=wait_s)
    path.unlink(missing_ok=True)
    return was_alive


def is_alive(path: Path) -> bool:
    """Whether the process group that the record at `path` tells of lives on this machine."""
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=EngineProcess)
    except (OSError, msgspec.DecodeError):
        return False
    return entry.host == socket.gethostname() and _lives(entry)


def end_group(pgid: int, *, wait_s: float = 20.0) -> None:
    """Kill a process group and wait until none of it is left. The caller reaps its own child.

    Raises:
        EngineDied: Some of it is still there after `wait_s`.
    """
    deadline = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, signal.SIGKILL)
        if not any(True for _ in members(pgid)):
            return
        if time.monotonic() > deadline:
            raise errors.EngineDied(
                reason=f"process group {pgid} of an earlier engine does not end after {wait_s:g} s;"
                f" look at it with `ps -o pid,stat,cmd -g {pgid}`"
            )
        time.sleep(0.01)


def members(pgid: int) -> Iterator[int]:
    """Process ids of a group that are not already dead and merely unreaped."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        fields = _stat(int(entry.name))
        if fields and int(fields[2]) == pgid and fields[0] not in "ZX":
            yield int(entry.name)


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_kills() -> int:
    """Processes that the kernel has killed for want of memory: of this process's control group, or of the system."""
    for place in (_own_group() / "memory.events", Path("/proc/vmstat")):
        with contextlib.suppress(OSError, ValueError):
            words = place.read_text("ascii").split()
            return int(words[words.index("oom_kill") + 1])
    return 0


def _own_group() -> Path:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            if line.startswith("0::/"):
                return Path("/sys/fs/cgroup", line.removeprefix("0::/"))
    return Path("/sys/fs/cgroup")


def strays() -> list[int]:
    """Process groups of engines whose rowmill is gone: nobody will end them."""
    found = []
    for entry in Path("/proc").iterdir():
        pid = int(entry.name) if entry.name.isdecimal() else 0
        fields = _stat(pid) if pid else []
        is_leader = bool(fields) and int(fields[2]) == pid and fields[0] not in "ZX"
        if is_leader and int(fields[1]) == 1 and _mark_of(pid):
            found.append(pid)
    return found


def _mark_of(pid: int) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}=".encode() in environment


def _lives(entry: EngineProcess) -> bool:
    return entry.boot_id == _boot_id() and _is_ours(entry)


def _is_ours(entry: EngineProcess) -> bool:
    fields = _stat(entry.pid)
    if fields and fields[0] not in "ZX":
        return int(fields[19]) == entry.start_ticks
    # The leader is gone; its number cannot be given anew while its group has members, but may have been since.
    return any(_has_mark(pid, entry.mark) for pid in members(entry.pid))


def _has_mark(pid: int, mark: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _start_ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[19]) if fields else 0


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
