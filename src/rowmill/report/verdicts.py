"""What the workers of a run wrote down -> what the run waits for most: the last start, and workers beside it.

Promises: the same verdict as at the run's end, also of one that goes on or was killed.
Knows nothing of: rules (see diagnose).
Memory: half a MiB of events a worker.
"""

from __future__ import annotations

import datetime
from collections import Counter

import msgspec

from rowmill.diagnose import verdict
from rowmill.eventlog import WorkerEvents, read_workers
from rowmill.events import Began, EngineReady, Verdict
from rowmill.storage import Storage
from rowmill.telemetry import Sample

ENOUGH_BYTES = 256 * 2**10
"""Of a long run's events its beginning says what the machine is, its end what was summed up and how it stands."""


def verdict_of(storage: Storage) -> Verdict | None:
    """What the run at `storage` waits for most; None where nothing is known.

    Of several workers, what most of them wait for is said, and how many they are.
    """
    workers = last_start(read_workers(storage, most_bytes=ENOUGH_BYTES))
    found = [one for worker in workers if (one := worker_verdict(worker))]
    told = [one for one in found if one.station] or found
    if not told:
        return None
    station, times = Counter(one.station for one in told).most_common(1)[0]
    chosen = next(one for one in reversed(told) if one.station == station)
    if len(told) == 1:
        return chosen
    return msgspec.structs.replace(
        chosen, says=f"{chosen.says} (so {times:,} of {len(told):,} workers)"
    )


def worker_verdict(worker: WorkerEvents) -> Verdict | None:
    """What one start of a worker waited for most; None where it asked nothing."""
    return verdict(worker.of(Sample), engine=worker.last(EngineReady), began=worker.last(Began))


def last_start(workers: list[WorkerEvents]) -> list[WorkerEvents]:
    """The worker that began last, and those that were still at it then."""
    timed = [(span, worker) for worker in workers if (span := _span(worker)) is not None]
    if not timed:
        return []
    (began, _), _ = timed[-1]
    return [worker for (_, ended), worker in timed if ended >= began]


def _span(worker: WorkerEvents) -> tuple[float, float] | None:
    began = worker.last(Began)
    if began is None:
        return None
    at = datetime.datetime.fromisoformat(began.time).timestamp()
    return at, at + worker.moments[-1].at
