"""A run in progress -> where its time went: processor time by thread and process, and how long the engines had nothing.

Promises: the run does what it does without it; threads are asked as they end, those that stay are looked at.
Knows nothing of: what threads do, beyond their names.
Memory: two numbers a batch.
Source: /proc/self/task/ID/schedstat and /proc/ID/stat of Linux. What no thread of Python used is the tokenizers'.
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

LEAST_S = 0.001
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
        self._began = self._own = self._ended = 0.0
        self._threads: dict[str, float] = {}
        self._engines: dict[str, float] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Watch:
        self._began = time.perf_counter()
        self._own, self._ended = time.process_time(), _ended_children()
        self._engines = tree_seconds()
        self._threads = {name: -seconds for name, seconds in thread_seconds().items()}
        self._run_of_threads = threading.Thread.run
        self._count_ends()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        setattr(threading.Thread, "run", self._run_of_threads)  # noqa: B010 - of a class
        for name, seconds in thread_seconds().items():
            self._add(name, seconds)
        self._own = time.process_time() - self._own
        self._ended = _ended_children() - self._ended
        before, after = self._engines, tree_seconds()
        self._engines = {
            name: round(seconds - before.get(name, 0.0), 3) for name, seconds in after.items()
        }

    def found(self, seconds: float) -> dict[str, Any]:
        """What was seen of a run of so many seconds."""
        named: dict[str, float] = {}
        for name, total in self._threads.items():
            work = WORK_OF.get(name, name)
            named[work] = round(named.get(work, 0.0) + total, 3)
        known = sum(self._threads.values())
        return {
            "parent_cpu_s": round(self._own, 3),
            "threads_cpu_s": {name: total for name, total in named.items() if total >= LEAST_S},
            "tokenizers_cpu_s": round(max(0.0, self._own - known), 3),
            "engines_cpu_s": self._engines,
            "other_children_cpu_s": round(self._ended, 3),
            **flow_of(self._fleet.moves, self._began, seconds),
        }

    def _count_ends(self) -> None:
        """Have threads that end tell what they used: nobody could ask them later."""
        run, add = self._run_of_threads, self._add

        def counted(thread: threading.Thread) -> None:
            try:
                run(thread)
            finally:
                add(thread.name, time.thread_time())

        setattr(threading.Thread, "run", counted)  # noqa: B010 - of a class

    def _add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._threads[name] = self._threads.get(name, 0.0) + seconds


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
    """Processor time of this process's threads that Python knows and that are alive, by name."""
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
