"""A run in progress -> where its time went: processor time by thread and process, and how long the engines had nothing.

Promises: nothing in the run is changed for it; threads are looked at from outside, 20 times a second.
Knows nothing of: what threads do, beyond their names.
Memory: two numbers a batch.
Source: /proc/self/task/ID/schedstat and /proc/ID/stat of Linux.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from rowmill.engines.warm import WarmFleet
from rowmill.outcomes import Outcomes
from rowmill.rows import Prompts

PERIOD_S = 0.05
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
WORK_OF = {
    "MainThread": "feed, publish",
    "rowmill-read": "read, validate",
    "rowmill-measure": "measure, plan",
    "rowmill-receive": "receive, write",
    "rowmill-keep": "commit, checkpoint",
    "warm": "unpack answers",
}
"""Thread -> what it does; others go by their own names."""


class WatchedFleet(WarmFleet):
    """A warm fleet that notes when rows come and go."""

    def forget(self) -> None:
        """Begin anew, for the next run."""
        self.moves: list[tuple[float, int]] = []
        """(moment, rows): handed over, or as a negative number answered."""

    def submit(self, prompts: Prompts) -> None:
        """Give rows to the engines."""
        self.moves.append((time.perf_counter(), len(prompts)))
        super().submit(prompts)

    def outcomes(self) -> Iterator[Outcomes]:
        """Outcomes as they come; see `WarmFleet`."""
        for outcomes in super().outcomes():
            self.moves.append((time.perf_counter(), -len(outcomes)))
            yield outcomes


class Watch:
    """Looks on while a run goes on in this process."""

    def __init__(self, fleet: WatchedFleet) -> None:
        self._fleet = fleet
        self._began = 0.0
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._began = time.perf_counter()
        self._own, self._ended = time.process_time(), _ended_children()
        self._engines = tree_seconds()
        self._first = thread_seconds()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._last |= thread_seconds()
        self._own = time.process_time() - self._own
        self._ended = _ended_children() - self._ended
        after = tree_seconds()
        self._engines = {
            name: round(seconds - self._engines.get(name, 0.0), 3)
            for name, seconds in after.items()
        }

    def found(self, seconds: float) -> dict[str, Any]:
        """What was seen of a run of so many seconds."""
        threads = {
            name: round(total - self._first.get(name, 0.0), 3)
            for name, total in self._last.items()
        }
        known = sum(threads.values())
        named: dict[str, float] = {}
        for name, total in threads.items():
            work = WORK_OF.get(name, name)
            named[work] = round(named.get(work, 0.0) + total, 3)
        return {
            "parent_cpu_s": round(self._own, 3),
            "threads_cpu_s": named,
            "tokenizers_cpu_s": round(max(0.0, self._own - known), 3),
            "engines_cpu_s": self._engines,
            "other_children_cpu_s": round(self._ended, 3),
            **flow_of(self._fleet.moves, self._began, seconds),
        }

    def _look(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._last |= thread_seconds()


def flow_of(moves: list[tuple[float, int]], began: float, seconds: float) -> dict[str, float]:
    """How rows came and went: wait for the first, time without any, mean number, time after the last."""
    moves = sorted(moves)
    if not moves:
        return {"first_row_s": round(seconds, 3), "engine_idle_s": round(seconds, 3)}
    idle = area = 0.0
    flying = 0
    at = moves[0][0]
    for moment, rows in moves:
        idle += (moment - at) * (flying <= 0)
        area += (moment - at) * flying
        flying, at = flying + rows, moment
    busy = max(at - moves[0][0], 1e-9)
    first, after = moves[0][0] - began, began + seconds - at
    return {
        "first_row_s": round(first, 3),
        "engine_idle_s": round(idle, 3),
        "mean_in_flight": round(area / busy, 1),
        "after_last_answer_s": round(max(0.0, after), 3),
    }


def thread_seconds() -> dict[str, float]:
    """Processor time of this process's threads that Python knows, by name; same names are added up."""
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        try:
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text("ascii")
        except OSError:
            continue  # ended just now, or no Linux
        found[thread.name] = found.get(thread.name, 0.0) + int(text.split()[0]) / 1e9
    return found


def tree_seconds() -> dict[str, float]:
    """Processor time of each process below this one, `NAME PID` -> seconds."""
    parents: dict[int, tuple[int, str, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text("utf-8", "replace")
        except OSError:
            continue  # ended just now
        name, _, rest = text.partition("(")[2].rpartition(")")
        words = rest.split()
        ticks = int(words[11]) + int(words[12])
        parents[int(folder.name)] = (int(words[1]), name, ticks * TICK_S)
    own = os.getpid()
    return {
        f"{name} {pid}": seconds
        for pid, (_, name, seconds) in parents.items()
        if pid != own and _is_below(pid, own, parents)
    }


def _is_below(pid: int, top: int, parents: dict[int, tuple[int, str, float]]) -> bool:
    while pid in parents:
        if pid == top:
            return True
        pid = parents[pid][0]
    return False


def _ended_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
