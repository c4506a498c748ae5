"""One trial: a small job, struck at random moments, gone on with, and seen to be whole.

As a program: `python -m tests.kill.trials [COUNT] [SEED]` tells a JSON line a trial.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.kill import left
from tests.kill.left import Broken
from tests.kill.moments import (
    Draw,
    Moment,
    draw_in_work,
    draw_moment,
    draw_of_files,
    draw_waking,
)
from tests.kill.small_job import LIMIT_S, SOURCE, SmallJob, Worker, draw_job

MOST_KILLS = 3
SEED = 7


@dataclass
class Toll:
    """What the strikes of a trial cost."""

    kills: int = 0
    torn_rows: int = 0
    """Rows whose outcomes were cut off the disk."""
    repeated: int = 0
    """Starts of rows beyond the first of each."""
    allowed: int = 0
    """The most that may be repeated: rows in flight at each kill, and those cut off."""


def trial(number: int, folder: Path, *, source: Path = SOURCE, seed: int = SEED) -> Toll:
    """The trial of this number: every other kills the parent, the rest the engine.

    Raises:
        Broken: a promise did not hold.
    """
    rng = random.Random(f"{seed} {number}")
    job = draw_job(rng, folder, source=source)
    return engine_killed(rng, job) if number % 2 else parent_killed(rng, job)


def undisturbed(job: SmallJob) -> None:
    """Nothing happens to the run."""
    with ended(job):
        left.check_ended(job, job.start())
        left.check_whole(job)
        left.check_nobody_lives(job)


def parent_killed(
    rng: random.Random, job: SmallJob, *, draw: Draw = draw_moment, kills: int = 0
) -> Toll:
    """Kill the parent, up to three times; tear what it left; the same command finishes.

    Args:
        kills: how many; 0 draws.
    """
    toll = Toll()
    kept: list[tuple[set[int], Counter[int]]] = []
    with ended(job):
        for _ in range(kills or rng.choice([1, MOST_KILLS, MOST_KILLS, MOST_KILLS])):
            worker = job.start()
            if not draw(rng, job).wait(job, worker):
                left.check_ended(job, worker)
                break
            worker.signal(signal.SIGKILL)
            worker.process.wait()
            toll.kills += 1
            before = left.rows_on_disk(job.out)
            if rng.random() < 0.7:
                left.tear(rng, job.out)
            after = left.rows_on_disk(job.out)
            torn = before - after
            toll.torn_rows += len(torn)
            # What is torn may have been kept through earlier kills.
            kept = [(rows - torn, started) for rows, started in kept]
            kept.append((after, left.starts(job.log)))
        left.check_ended(job, job.start())
        left.check_whole(job)
        left.check_nobody_lives(job)
    _count(job, toll, kept)
    return toll


def engine_killed(rng: random.Random, job: SmallJob) -> Toll:
    """Kill the engine, once or twice; the run goes on by itself."""
    toll = Toll()
    with ended(job):
        worker = job.start()
        # Twice at most: a row in flight at more deaths would rightly be blamed for them.
        for _ in range(rng.choice([1, 2, 2, 2])):
            if not draw_in_work(rng, job).wait(job, worker):
                break
            for pid in left.engine_pids(job):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    toll.kills += 1
        left.check_ended(job, worker)
        left.check_whole(job)
        left.check_nobody_lives(job)
    _count(job, toll, [])
    return toll


def appended(rng: random.Random, job: SmallJob) -> Toll:
    """The first file is answered in peace, the others join it and are struck at."""
    files = sorted(job.folder.glob(f"f*.{job.kind}"))[1:]
    for file in files:
        file.rename(file.with_name(f"later-{file.name}"))
    with ended(job):
        left.check_ended(job, job.start())
    for file in files:
        file.with_name(f"later-{file.name}").rename(file)
    return parent_killed(rng, replace(job, options=("--append",)), draw=draw_of_files)


def zombie(
    rng: random.Random, job: SmallJob, *, after_rows: int = 1, draw: Draw = draw_waking
) -> Toll:
    """Stop a worker; another takes over; wake the first while the other works, or after.

    Args:
        after_rows: so many outcomes at least are on the disk when the worker stops; 0: none need be.
        draw: the moment of waking.
    """
    with ended(job):
        first = job.start()
        token = _token(job, first)
        sign = "bytes" if after_rows else "engine"
        most = 60 * len(job.rows) if after_rows else 1
        Moment(sign, rng.randint(1, most), rng.uniform(0, 0.05)).wait(job, first)
        first.signal(signal.SIGSTOP)
        heir = job.start(join=token)
        draw(rng, job).wait(job, heir)
        first.signal(signal.SIGCONT)
        left.check_ended(job, heir)
        left.check_ended(job, first)
        left.check_whole(job)
        left.check_nobody_lives(job)
    return Toll()


def shared(rng: random.Random, job: SmallJob, *, kill: int | None = None) -> list[int]:
    """Two workers on one run from its start.

    Args:
        kill: which of them is killed at a random moment; None: neither.

    Returns: how many tasks each committed.
    """
    with ended(job):
        first = job.start()
        workers = [first, job.start(join=_token(job, first))]
        if kill is not None:
            victim = workers.pop(kill)
            draw_in_work(rng, job).wait(job, victim)
            victim.signal(signal.SIGKILL)
        for worker in workers:
            left.check_ended(job, worker)
        if kill is not None:
            left.check_ended(job, job.start())
        left.check_whole(job)
        left.check_nobody_lives(job)
    names = [
        json.loads(file.read_bytes())["worker"] for file in (job.out / "commits").iterdir()
    ]
    return [sum(name.endswith(f"-{w.pid}") for name in names) for w in workers]


@contextlib.contextmanager
def ended(job: SmallJob) -> Iterator[None]:
    """Whatever a trial started is gone after it."""
    try:
        yield
    finally:
        for pid in left.living(job.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for worker in job.workers:
            worker.process.wait()


def _token(job: SmallJob, worker: Worker) -> str:
    give_up_at = time.monotonic() + LIMIT_S
    while not (token := job.token()):
        if not worker.is_running or time.monotonic() > give_up_at:
            told = f"the run never said its token: {worker.told()}"
            raise Broken(told)
        time.sleep(0.001)
    return token


def _count(job: SmallJob, toll: Toll, kept: list[tuple[set[int], Counter[int]]]) -> None:
    """See that no row on the disk was asked again, and no more rows than were in flight or cut off."""
    starts = left.starts(job.log)
    for on_disk, before in kept:
        again = [key for key in on_disk if starts[key] > before[key]]
        if again:
            told = f"rows with an outcome were asked again: {again}"
            raise Broken(told)
    toll.repeated = starts.total() - len(starts)
    toll.allowed = toll.kills * job.most_in_flight + toll.torn_rows
    if toll.repeated > toll.allowed:
        told = f"{toll.repeated} rows repeated, {toll.allowed} allowed"
        raise Broken(told)


def main(count: int, seed: int) -> int:
    """Trials one after the other, a line each; the number that failed."""
    failed = 0
    for number in range(count):
        folder = Path(tempfile.mkdtemp(prefix="kill-"))
        line: dict[str, Any] = {"trial": number}
        began = time.monotonic()
        try:
            line |= asdict(trial(number, folder / "job", seed=seed))
        except Broken as broken:
            line["broken"], line["folder"] = str(broken), str(folder)
            failed += 1
        else:
            shutil.rmtree(folder)
        line["seconds"] = round(time.monotonic() - began, 2)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    sys.exit(min(main((words or [50])[0], (words[1:] or [SEED])[0]), 1))
