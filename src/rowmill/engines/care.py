"""How engines are watched and started anew, as one value that passes from the run to each supervisor.

Knows nothing of: rows, processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rowmill.config import RunConfig
from rowmill.engines.ladder import Step

__all__ = ["Care", "care_of"]


def _tell(_text: str) -> None:
    """Nobody listens."""


def _keep(_step: Step) -> None:
    """Nothing is kept."""


def _nothing() -> None:
    """Nobody is waiting."""


def _never() -> bool:
    return False


class Care(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `[run]` that concern engines, and whom a supervisor speaks to. Called from any thread."""

    stall_s: float | None = None
    """Quiet that is allowed; None: derived."""
    start_s: float = 3600.0
    """Seconds in which an engine must be ready."""
    recycle_rows: int | None = None
    recycle_gib: float | None = None
    taken: Sequence[Step] = ()
    """Steps down that an earlier start took."""
    tell: Callable[[str], None] = _tell
    """Gets sentences for people."""
    keep: Callable[[Step], None] = _keep
    """Gets each step down, before it is tried."""
    restarted: Callable[[], None] = _nothing
    """Called once a further process is ready: what it says of itself may differ."""
    is_stopping: Callable[[], bool] = _never
    """Whether the run ends: an engine that is not ready yet is not waited for."""


def care_of(run: RunConfig) -> Care:
    """What the job says of it."""
    return Care(
        stall_s=run.stall_s,
        start_s=run.start_s,
        recycle_rows=run.recycle_rows,
        recycle_gib=run.recycle_gib,
    )
