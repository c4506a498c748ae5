"""Looks at all workers, and the ledger -> one view of the run, as if one worker did it all.

Promises: rows done are those committed, and those of open tasks of workers that live: a lost worker's rows go
with it and come back with whoever takes its tasks over.
Knows nothing of: Ray.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowmill.events import Progress
from rowmill.executors.ray.ledger import Ledger
from rowmill.executors.sharing import Look

MEANS = ("engine_kv_use", "engine_hit_rate")
"""Gauges that are shares: their mean over workers is told; of all others the sum."""


def progress_of(
    ledger: Ledger,
    living: Sequence[Look],
    ended: Sequence[Look],
    *,
    workers: int,
    seconds: float,
) -> Progress:
    """How far the run is.

    Args:
        living: the last look at each worker that works.
        ended: the last one at each that ended or was lost.
        workers: how many there are, those that were not looked at yet too.
        seconds: since the first row.
    """
    ok = ledger.counts.ok + sum(look.open_ok for look in living)
    failed = ledger.counts.failed + sum(look.open_failed for look in living)
    # A worker that is dead and not known to be is counted beside the one that goes on with its tasks.
    ok = min(ok, max(ledger.total - failed, 0))
    both = [*living, *ended]
    return Progress(
        done=ok + failed,
        ok=ok,
        failed=failed,
        total=ledger.total,
        in_flight=sum(look.in_flight for look in living),
        prompt_tokens=sum(look.prompt_tokens for look in both),
        output_tokens=sum(look.output_tokens for look in both),
        seconds=seconds,
        resumed=ledger.resumed,
        queues=merged_queues(living),
        workers=workers,
    )


def merged_queues(looks: Sequence[Look]) -> dict[str, float]:
    """What waits before each station, over all workers."""
    merged: dict[str, list[float]] = {}
    for look in looks:
        for name, value in look.queues.items():
            merged.setdefault(name, []).append(value)
    return {
        name: sum(values) / (len(values) if name in MEANS else 1)
        for name, values in merged.items()
    }
