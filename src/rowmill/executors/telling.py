"""Counts -> events: how far a run is, for whoever listens."""

from __future__ import annotations

from collections.abc import Sequence

from rowmill.engines.channel import Gauge
from rowmill.events import Progress
from rowmill.feed import Feed
from rowmill.journal import Counts


def progress_event(
    resumed: Counts, new: Counts, *, total: int, seconds: float, queues: dict[str, float]
) -> Progress:
    """How far the run is.

    Args:
        resumed: of outcomes that earlier starts wrote.
        new: of those of this start.
        queues: what waits before each station; `in_flight` is what the engine holds.
    """
    return Progress(
        done=resumed.done + new.done,
        ok=resumed.ok + new.ok,
        failed=resumed.failed + new.failed,
        total=total,
        in_flight=int(queues["in_flight"]),
        prompt_tokens=new.prompt_tokens,
        output_tokens=new.output_tokens,
        seconds=seconds,
        resumed=resumed.done,
        queues=queues,
    )


def queues(feed: Feed, gauges: Sequence[Gauge]) -> dict[str, float]:
    """What waits between stations: the fullest one names the bottleneck behind it."""
    return {
        "in_flight_target": feed.target_rows,
        "in_flight": feed.in_flight,
        "child_waiting_batches": sum(gauge.waiting for gauge in gauges),
        **_engine_queues(gauges),
    }


def _engine_queues(gauges: Sequence[Gauge]) -> dict[str, float]:
    """What engines say of their own queues and caches; empty where they say nothing. Shares are means over replicas."""
    told = [g for g in gauges if g.running or g.kv_use or g.preemptions]
    if not told:
        return {}
    return {
        "engine_running": sum(g.running for g in told),
        "engine_waiting": sum(g.waiting_rows for g in told),
        "engine_kv_use": sum(g.kv_use for g in told) / len(told),
        "engine_preemptions": sum(g.preemptions for g in told),
        "engine_hit_rate": sum(g.hit_rate for g in told) / len(told),
    }
