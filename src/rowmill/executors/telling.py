"""Counts -> events: how far a run is, for whoever listens."""

from __future__ import annotations

from rowmill.events import Progress
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
