"""A job, a list of settings -> what each does over the same rows, engine by engine.

Promises: every setting gets the same rows in the same order, from the beginning; nothing is kept and nothing chosen.
Knows nothing of: outputs, tables.
Memory: the sample's prompts.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.engines.care import care_of
from rowmill.errors import ConfigError, EngineDied
from rowmill.executors.opening import Opened, new_run, new_token, stations_of, understand
from rowmill.forecast.gathered import Gathered
from rowmill.outcomes import Outcomes
from rowmill.pipeline import TaskRows
from rowmill.read import open_source
from rowmill.size.gpus import find_gpus
from rowmill.tune.moves import with_engine
from rowmill.tune.sample import Sample
from rowmill.tune.trial import Measured, Patience, Trial

MOST_TOKENS = 30_000_000
SETTLE_S = 30.0

Tell = Callable[[str], None]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    changes: dict[str, Any]
    measured: Measured | None = None
    start_s: float = 0.0
    gpu_bytes: int = 0
    """Memory of the GPUs that is taken while it runs; 0 without GPUs."""
    gpus: int = 1
    seats: int = 0
    kv_tokens: int = 0
    failed: str = ""


def points_of(ways: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of values, the last name changing first.

    Example:
        >>> points_of({"seats": [64, 128], "threads": [1]})
        [{'seats': 64, 'threads': 1}, {'seats': 128, 'threads': 1}]
    """
    return [
        dict(zip(ways, values, strict=True)) for values in itertools.product(*ways.values())
    ]


def sampled(job: Job, spool: Path) -> tuple[Opened, Sample, Gathered]:
    """Rows of a job, as planned, without an output.

    Raises:
        ConfigError: the job or its input cannot be used.
    """
    words = understand(job)
    opened = new_run(words, open_source(job.source, spool=spool, read=job.read), new_token())
    stations, sample, gathered = stations_of(opened), Sample(), Gathered()
    tasks = (
        TaskRows(task, list(opened.places.task_slices(task)), set())
        for task in range(opened.cut.num_tasks)
    )
    for window in stations.windows(tasks):
        sample.add(window.plan)
        gathered.add_planned(window.plan)
        if sample.tokens > MOST_TOKENS:
            break
    return opened, sample, gathered


def sweep(
    job: Job,
    sample: Sample,
    points: Sequence[dict[str, Any]],
    patience: Patience,
    *,
    tell: Tell,
) -> Iterator[Point]:
    """Measure each setting.

    Args:
        job: as `sampled` understood it.
    """
    for changes in points:
        told = ", ".join(f"{name} = {value}" for name, value in changes.items()) or "as given"
        tell(f"starting the engine: {told}")
        with tempfile.TemporaryDirectory(prefix="rowmill-sweep-") as folder:
            try:
                yield _point(job, sample, changes, patience, Path(folder), tell)
            except (EngineDied, ConfigError) as error:
                yield Point(changes=changes, failed=f"does not run: {error}")


def _point(
    job: Job,
    sample: Sample,
    changes: dict[str, Any],
    patience: Patience,
    folder: Path,
    tell: Tell,
) -> Point:
    care = msgspec.structs.replace(care_of(job.run), tell=tell)
    engine = with_engine(job, changes).engine
    trial = Trial(engine, log=folder / "engine.log", care=care, put=_forget)
    try:
        limits = trial.start()
        measured = trial.measure(sample.stream(), limits.seats, patience)
        taken = sum(gpu.used_bytes for gpu in find_gpus())
        trial.settle(SETTLE_S)
    finally:
        trial.close()
    if trial.came_down:
        return Point(changes=changes, failed="there is not enough memory for it")
    return Point(
        changes=changes,
        measured=measured,
        start_s=trial.start_s,
        gpu_bytes=taken,
        gpus=trial.gpus,
        seats=limits.seats,
        kv_tokens=limits.kv_tokens,
        failed="" if measured is not None else "too few rows were answered to tell",
    )


def _forget(_outcomes: Outcomes) -> None:
    """A sweep keeps no answers."""
