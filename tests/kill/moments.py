"""When to strike: a moment of a run's life, drawn by time, by bytes, by commits or at publishing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kill.left import open_segments
from tests.kill.small_job import LIMIT_S, SmallJob, Worker

POLL_S = 0.0005
LIFE_S = 0.9
"""About how long a small run works, from owning its output on."""
ROW_BYTES = 110


@dataclass(frozen=True)
class Moment:
    """A sign at the output, so many of it, and a while after."""

    sign: str
    amount: int
    after_s: float

    def wait(self, job: SmallJob, worker: Worker) -> bool:
        """Wait for the moment. Returns: False where the worker ended before."""
        give_up_at = time.monotonic() + LIMIT_S
        while SIGNS[self.sign](job.out) < self.amount:
            if not worker.is_running or time.monotonic() > give_up_at:
                return False
            time.sleep(POLL_S)
        time.sleep(self.after_s)
        return worker.is_running


def draw_moment(rng: random.Random, job: SmallJob, *, signs: tuple[str, ...] = ()) -> Moment:
    """A moment of the coming life of a run that may have lived before."""
    sign = rng.choice(signs or ("owner", "engine", "bytes", "bytes", "commits", "results"))
    done = SIGNS[sign](job.out)
    if sign == "owner":
        return Moment(sign, 1, rng.uniform(0, LIFE_S))
    if sign == "engine":
        return Moment(sign, 1, rng.uniform(0, 0.5))
    if sign == "bytes":
        return Moment(sign, done + rng.randint(1, ROW_BYTES * len(job.rows)), 0)
    if sign == "commits":
        last = max(done + 1, job.num_tasks)
        return Moment(sign, rng.randint(done + 1, last), rng.choice([0, 0, 0.001, 0.005, 0.02]))
    return Moment(sign, 1, rng.uniform(0, 0.02))


def _owner(out: Path) -> int:
    lock = out / "leases/owner.lock"
    return int(lock.exists() and lock.stat().st_size > 0)


def _engine(out: Path) -> int:
    return len(list((out / "engines").glob("*.json")))


def _bytes(out: Path) -> int:
    sizes = 0
    for file in (out / "segments").glob("*/*"):
        try:
            sizes += file.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def _commits(out: Path) -> int:
    return len(list((out / "commits").glob("*.json")))


def _results(out: Path) -> int:
    """Half-written ones too."""
    folder = out / "results"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _open(out: Path) -> int:
    return len(open_segments(out))


SIGNS: dict[str, Callable[[Path], int]] = {
    "owner": _owner,
    "engine": _engine,
    "bytes": _bytes,
    "commits": _commits,
    "results": _results,
    "open segments": _open,
}
"""What can be waited for -> how much of it there is."""
