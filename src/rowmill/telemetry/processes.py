"""This process and what it started -> processor time, memory, disk bytes; read from /proc, as cheaply as it goes.

Promises: what was used before is not counted, for a run may begin in a process that has long been at work; what a process
that ended used is not forgotten; nothing is asked of a process that is not ours; where there is no /proc there are no numbers.
Knows nothing of: engines beyond their having process groups of their own.
Memory: a few numbers a process.
Source: proc(5): /proc/PID/stat, /proc/PID/io, /proc/PID/task/ID/children and schedstat.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 10.0
"""So often new processes are looked for: that is dearer than reading those that are known."""
MOST_THREADS = 64
"""A process with more threads is taken to start children from its first ones."""
OWN, ENGINE, OTHER = "rowmill", "engine", "other"


class Usage(msgspec.Struct):
    """What one process used so far."""

    role: str
    cpu_s: float = 0.0
    memory_bytes: int = 0
    read_bytes: int = 0
    write_bytes: int = 0


class Processes:
    """This process and those below it. Not safe for two threads."""

    def __init__(self) -> None:
        self._own = os.getpid()
        self._known: dict[int, Usage] = {}
        self._ended: dict[str, Usage] = {}
        self._looked_at = -LOOK_S
        self._before = self._whole()

    def look(self) -> dict[str, Usage]:
        """By role, what all of them used since the beginning of this watch; memory is what they hold now."""
        found = self._whole()
        for role, used in self._before.items():
            one = found[role]
            one.cpu_s -= used.cpu_s
            one.read_bytes -= used.read_bytes
            one.write_bytes -= used.write_bytes
        return found

    def _whole(self) -> dict[str, Usage]:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S or len(self._known) < 2:
            self._looked_at = now
            self._find()
        for pid in list(self._known):
            if not self._read(pid):
                self._bury(pid)
        totals: dict[str, Usage] = {}
        for usage in (*self._ended.values(), *self._known.values()):
            _add(totals.setdefault(usage.role, Usage(usage.role)), usage)
        return totals

    def _find(self) -> None:
        for pid in _tree(self._own):
            if pid not in self._known and (role := self._role(pid)):
                self._known[pid] = Usage(role)

    def _role(self, pid: int) -> str:
        """Own, an engine (it leads a group of its own), what an engine started, by name, or another."""
        if pid == self._own:
            return OWN
        name, fields = _stat(pid)
        if not fields:
            return ""
        group = int(fields[2])
        if group == pid:
            return ENGINE
        return OTHER if group == os.getpgrp() else f"{ENGINE} {name}"

    def _read(self, pid: int) -> bool:
        _, fields = _stat(pid)
        if not fields or fields[0] in "ZX":
            return False
        usage = self._known[pid]
        usage.cpu_s = (int(fields[11]) + int(fields[12])) * TICK_S
        usage.memory_bytes = int(fields[21]) * PAGE_BYTES
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = Path(f"/proc/{pid}/io").read_bytes().split()
            usage.read_bytes, usage.write_bytes = int(words[9]), int(words[11])
        return True

    def _bury(self, pid: int) -> None:
        usage = self._known.pop(pid)
        usage.memory_bytes = 0
        _add(self._ended.setdefault(usage.role, Usage(usage.role)), usage)


def thread_seconds() -> dict[str, float]:
    """Processor time of this process's living threads that have a name of ours, by name; who asks is the one that feeds."""
    found: dict[str, float] = {}
    feed = threading.current_thread()
    for thread in threading.enumerate():
        if not thread.name.startswith("rowmill-") and thread is not feed:
            continue
        name = "feed" if thread is feed else thread.name[8:]
        with contextlib.suppress(OSError):
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_bytes()
            found[name] = found.get(name, 0.0) + int(text.split()[0]) / 1e9
    return found


def net_bytes() -> tuple[int, int, int]:
    """(in, out, through the loopback) of this machine since it started."""
    received = sent = loop = 0
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/dev").read_text("ascii", "replace").splitlines()[2:]:
            name, _, numbers = line.partition(":")
            words = numbers.split()
            if name.strip() == "lo":
                loop += int(words[0])
            else:
                received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent, loop


def cores() -> float:
    """Processors that this process may use: its affinity, or what its control group allows."""
    allowed = float(len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        if quota != "max":
            allowed = min(allowed, int(quota) / int(period))
    return allowed


def memory_bytes() -> int:
    """Memory of this machine, or what its control group allows."""
    whole = PAGE_BYTES * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return whole


def _tree(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in sorted(Path(f"/proc/{pid}/task").iterdir())[:MOST_THREADS]:
            with contextlib.suppress(OSError):
                text = (thread / "children").read_bytes()
                for child in text.split():
                    yield from _tree(int(child))


def _stat(pid: int) -> tuple[str, list[str]]:
    """Name of a process, and the fields of its stat from the state on; none where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return "", []
    head, _, rest = text.rpartition(")")
    return head.partition("(")[2], rest.split()


def _add(total: Usage, more: Usage) -> None:
    total.cpu_s += more.cpu_s
    total.memory_bytes += more.memory_bytes
    total.read_bytes += more.read_bytes
    total.write_bytes += more.write_bytes
