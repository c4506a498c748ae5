"""What a run will take, said once its first rows are planned, and held against what it took.

Promises: nothing is looked at beyond the first rows, and nothing where the engine has no GPU here and none is named, unless
a probe was made; where an engine takes long to start, it is done by then.
Knows nothing of: how rows are asked.
"""

from __future__ import annotations

import threading
import time

from rowmill.config import Job
from rowmill.events import Forecast
from rowmill.forecast.foretold import Foretold
from rowmill.forecast.gathered import Gathered
from rowmill.forecast.probe import Estimate, Probe
from rowmill.forecast.words import brief_lines, estimate_words
from rowmill.pipeline import Stations
from rowmill.prospect import places_of, prospects

PATIENCE_S = 2.0
"""A run whose engine is open does not wait longer for what is only said."""
TICK_S = 0.1


class Foretelling:
    """The forecast of one start."""

    def __init__(
        self,
        job: Job,
        stations: Stations,
        *,
        is_wanted: bool = True,
        probe: Probe | None = None,
    ) -> None:
        """Have the stations keep the first rows, where there is something to forecast for.

        Args:
            probe: what was measured on rows of the run: it comes before what is computed.
        """
        self._job, self._stations, self._probe = job, stations, probe
        self._rows = 0
        self._found: Foretold | None = None
        self._thread: threading.Thread | None = None
        places = places_of(job) if is_wanted else []
        if len(places) == 1 and (places[0].is_here or job.plan.gpu):
            stations.gathered = Gathered()

    def begin(self, rows: int) -> None:
        """Look at the first rows beside whatever goes on, as soon as they are there: while an engine starts.

        Args:
            rows: to be asked in this start.
        """
        if self._stations.gathered is not None and rows:
            work = threading.Thread(target=self._wait_and_look, args=(rows,), daemon=True)
            work.name, self._thread = "foretelling", work
            work.start()

    def lines(self, rows: int) -> list[str]:
        """The forecast in words, and no more rows are kept; nothing where there is none, or none yet."""
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        elif rows:
            self._look(rows)
        self._stations.gathered = None
        self._rows = rows
        computed = list(brief_lines(self._found)) if self._found is not None else []
        measured = self._measured()
        return (
            computed
            if measured is None
            else [f"measured: {estimate_words(measured)}", *computed]
        )

    def _wait_and_look(self, rows: int) -> None:
        while (gathered := self._stations.gathered) is not None and gathered.is_open:
            if self._stations.num_read >= rows:
                break
            time.sleep(TICK_S)
        self._look(rows)

    def _look(self, rows: int) -> None:
        gathered = self._stations.gathered
        if gathered is not None:
            found = prospects(self._job, gathered, self._stations.limits, rows=rows)
            self._found = next(found, None)

    def _measured(self) -> Estimate | None:
        """By the probe, for the rows that this start is left with."""
        probe = self._probe
        if probe is None or not self._rows or not probe.rows:
            return None
        return probe.estimate(self._rows / probe.rows)

    def said(self) -> Forecast | None:
        """What was said, in seconds; None where nothing was."""
        found, measured = self._found, self._measured()
        is_computed = found is not None and bool(found.fit.parallel)
        if measured is not None:
            ideal_s = found.bounds.ideal_s if found is not None and is_computed else 0.0
            return Forecast(measured.seconds, measured.low_s, measured.high_s, ideal_s)
        if found is None or not is_computed:
            return None
        return Forecast(
            found.seconds,
            found.low_s,
            found.high_s,
            found.bounds.ideal_s,
            found.hit_rate,
            found.bounds.hit_rate,
        )
