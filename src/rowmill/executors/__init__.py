"""Who runs a job: one worker on this machine, or as many as a cluster has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rowmill import registry
from rowmill.metrics import listening

if TYPE_CHECKING:
    from rowmill.config import Job
    from rowmill.events import Summary


def run(job: Job, **how: Any) -> Summary:
    """Run a job to its end, or to a stop that can be resumed, by the executor that it names (`run.executor`).

    Args:
        how: see `local.run`.

    Raises:
        ConfigError: refused, nothing done.
        EngineDied, StorageError: died; the same call resumes.
    """
    executor = registry.load("executors", job.run.executor)
    with listening(job.telemetry, how.pop("listen", None)) as listen:
        summary: Summary = executor.run(job, listen=listen, **how)
    return summary
