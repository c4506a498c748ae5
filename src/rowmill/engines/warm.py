"""A fleet that stays open over several runs: for benchmarks and for programs that run job after job.

Promises: to a run it looks like a fleet of its own; the run's end leaves the engines open.
Knows nothing of: runs, rows.
Memory: outcomes that a run has not taken yet.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

from rowmill.config import EngineConfig
from rowmill.engines import place
from rowmill.engines.channel import Gauge
from rowmill.engines.fleet import Fleet
from rowmill.outcomes import Outcomes
from rowmill.rows import Limits, Prompts


class WarmFleet:
    """Engines of one setting, started once. One run at a time."""

    def __init__(self, engine: EngineConfig, *, log: Path) -> None:
        self.placement = place(engine)
        self._fleet = Fleet(self.placement.replicas, log=log)
        self._arrived: queue.SimpleQueue[Outcomes | BaseException | None] = queue.SimpleQueue()
        self.logs: list[Path] = []
        """None that a run may remove at its end."""
        self._limits = self._fleet.start()
        self._receiver = threading.Thread(target=self._receive, name="warm", daemon=True)
        self._receiver.start()

    @property
    def deaths(self) -> int:
        """Times an engine died after it was ready."""
        return self._fleet.deaths

    @property
    def limits(self) -> Limits:
        """What the engines can do together."""
        return self._limits

    @property
    def gauges(self) -> list[Gauge]:
        """What the engines last said of themselves."""
        return self._fleet.gauges

    def start(self) -> Limits:
        """What the engines can do together; they are open already."""
        return self._limits

    def submit(self, prompts: Prompts) -> None:
        """Give rows to the engines."""
        self._fleet.submit(prompts)

    def outcomes(self) -> Iterator[Outcomes]:
        """Outcomes as they come, until the run closes its view.

        Raises:
            EngineDied: no engine is left.
        """
        while (found := self._arrived.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found

    def drain(self) -> None:
        """Rows that were given are answered all the same: the engines stay."""

    def close(self) -> None:
        """End a run's view; the engines stay."""
        self._arrived.put(None)

    def shut(self) -> None:
        """End the engines."""
        self._fleet.close()
        self._receiver.join()

    def _receive(self) -> None:
        try:
            for outcomes in self._fleet.outcomes():
                self._arrived.put(outcomes)
        # Raised again in the run that is under way, or in the next.
        except BaseException as error:
            self._arrived.put(error)
