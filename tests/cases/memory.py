"""Memory of a process and all below it, looked at while it runs."""

from __future__ import annotations

import threading
from pathlib import Path

MIB = 2**20
EVERY_S = 0.1


class MemoryWatch:
    """Looks at a process tree's resident memory until it ends or is told to stop."""

    def __init__(self, pid: int, *, own: bool = False) -> None:
        """A look at `pid` and all below it; `own`: without pages of files, which several may share."""
        self._pid, self._entry = pid, "RssAnon:" if own else "VmRSS:"
        self.seen: list[int] = []
        """Bytes, one look after the other."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def close(self) -> int:
        """Stop looking. Returns: the most bytes seen."""
        self._stop.set()
        self._thread.join()
        return max(self.seen, default=0)

    def _look(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.seen.append(sum(resident_bytes(p, self._entry) for p in tree(self._pid)))


def tree(pid: int) -> list[int]:
    """A process and all its descendants that live now."""
    found = [pid]
    for parent in found:
        for tasks in Path("/proc").glob(f"{parent}/task/*/children"):
            try:
                found += map(int, tasks.read_text().split())
            except OSError:
                continue
    return found


def resident_bytes(pid: int, entry: str = "VmRSS:") -> int:
    """Resident memory of one process; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(entry))
