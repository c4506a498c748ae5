"""Rows answered and memory held -> whether an engine is better started anew.

Promises: off unless asked for; it is due once, and then again only after so much more.
Knows nothing of: how an engine is started.
Memory: a few numbers. Time: a look at /proc each few seconds, where growth is watched.
"""

from __future__ import annotations

import time

from rowmill.engines.care import Care
from rowmill.engines.process import EngineProcess

_LOOK_S = 5.0
_GIB = 2**30


class Recycling:
    """When the engine of one supervisor is due."""

    def __init__(self, care: Care) -> None:
        self._rows, self._gib = care.recycle_rows, care.recycle_gib
        self._process: EngineProcess | None = None
        self._answered = 0
        self._first_bytes = 0
        self._look_at = 0.0
        self.reason = ""
        """Why it is due; empty where it is not."""

    @property
    def is_due(self) -> bool:
        """Whether the engine gets no more rows."""
        return bool(self.reason)

    def begin(self, process: EngineProcess) -> None:
        """A process is ready."""
        self._process = process
        self._answered = self._first_bytes = 0
        self.reason = ""

    def answered(self, rows: int) -> None:
        """Count rows, and look at the memory now and then."""
        self._answered += rows
        if self._rows is not None and self._answered >= self._rows:
            self.reason = f"`run.recycle_rows` = {self._rows:,} rows are answered"
        if self._gib is not None and rows and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            self._weigh(self._gib)

    def _weigh(self, most_gib: float) -> None:
        held = self._process.memory_bytes() if self._process else 0
        self._first_bytes = self._first_bytes or held
        grown = (held - self._first_bytes) / _GIB
        if grown > most_gib:
            self.reason = f"it grew by {grown:.1f} GiB, more than `run.recycle_gib` allows"
