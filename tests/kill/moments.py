"""When to strike: a moment of a run's life, drawn by time, by bytes, by commits or at publishing."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kill.small_job import LIMIT_S, SmallJob, Worker

POLL_S = 0.0002
LIFE_S = 0.9
"""About how long a small run works, from owning its output on."""
ROW_BYTES = 350
"""About how long the line of an outcome is."""
USUAL = ("owner", "engine", "bytes", "bytes", "bytes", "commits", "commits", "results")


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


def draw_moment(rng: random.Random, job: SmallJob) -> Moment:
    """Any moment of the coming life of a run that may have lived before."""
    return draw_sign(rng, job, rng.choice(USUAL))


def draw_in_work(rng: random.Random, job: SmallJob) -> Moment:
    """A moment at which an engine is likely to be at work."""
    return draw_sign(rng, job, rng.choice(["engine", "bytes", "bytes", "commits"]))


def draw_among_rows(rng: random.Random, job: SmallJob) -> Moment:
    """A moment at which some outcomes are written and some are not."""
    return draw_sign(rng, job, "bytes")


def draw_at_commit(rng: random.Random, job: SmallJob) -> Moment:
    """The moment at which the next commit is seen."""
    return Moment("commits", SIGNS["commits"](job.out) + 1, 0)


def draw_of_files(rng: random.Random, job: SmallJob) -> Moment:
    """A moment at which files are unpacked or published, or any other."""
    is_spooling = job.kind == "jsonl.gz" and not SIGNS["spool"](job.out)
    if is_spooling and rng.random() < 0.7:
        return Moment("spool", rng.randint(1, 3), rng.choice([0, 0, 0.002, 0.01]))
    if rng.random() < 0.5:
        return Moment("results", rng.randint(1, 3), rng.choice([0, 0, 0.001, 0.01]))
    return draw_moment(rng, job)


def draw_sign(rng: random.Random, job: SmallJob, sign: str) -> Moment:
    """A moment that goes by this sign."""
    done = SIGNS[sign](job.out)
    if sign == "owner":
        return Moment(sign, 1, rng.uniform(0, LIFE_S))
    if sign == "engine":
        return Moment(sign, 1, rng.uniform(0, 0.5))
    if sign == "bytes":
        left = max(ROW_BYTES * len(job.rows) - done, ROW_BYTES)
        return Moment(sign, done + rng.randint(1, left), 0)
    if sign == "commits":
        last = max(done + 1, job.num_tasks)
        return Moment(sign, rng.randint(done + 1, last), rng.choice([0, 0, 0.001, 0.005, 0.02]))
    return Moment(sign, 1, rng.uniform(0, 0.02))


def draw_waking(rng: random.Random, job: SmallJob) -> Moment:
    """A moment of the life of a worker that takes over from a stopped one: mostly when it writes itself."""
    sign = rng.choice(["owner", "taken over", "bytes", "bytes", "commits"])
    if sign == "bytes":
        return draw_among_rows(rng, job)
    if sign == "owner":
        return draw_sign(rng, job, sign)
    done = SIGNS[sign](job.out)
    return Moment(
        sign, rng.randint(done + 1, max(done + 1, job.num_tasks)), rng.uniform(0, 0.1)
    )


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


def _spool(out: Path) -> int:
    """Half-written ones too."""
    folder = out / "spool"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _results(out: Path) -> int:
    """Half-written ones too."""
    folder = out / "results"
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _taken_over(out: Path) -> int:
    leases = [json.loads(file.read_bytes()) for file in (out / "leases").glob("*.json")]
    return sum(lease["epoch"] > 1 for lease in leases)


Draw = Callable[[random.Random, SmallJob], Moment]

SIGNS: dict[str, Callable[[Path], int]] = {
    "owner": _owner,
    "engine": _engine,
    "bytes": _bytes,
    "commits": _commits,
    "results": _results,
    "spool": _spool,
    "taken over": _taken_over,
}
"""What can be waited for -> how much of it there is."""
