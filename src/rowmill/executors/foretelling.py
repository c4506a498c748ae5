"""What a run will take, said once its first rows are planned, and held against what it took.

Promises: nothing is looked at beyond the first rows, and nothing where the engine has no GPU here and none is named.
Knows nothing of: how rows are asked.
"""

from __future__ import annotations

from rowmill.config import Job
from rowmill.events import Forecast
from rowmill.forecast.foretold import Foretold
from rowmill.forecast.gathered import Gathered
from rowmill.forecast.words import brief_lines
from rowmill.pipeline import Stations
from rowmill.prospect import places_of, prospects
from rowmill.rows import Limits


class Foretelling:
    """The forecast of one start."""

    def __init__(self, job: Job, stations: Stations) -> None:
        """Have the stations keep the first rows, where there is something to forecast for."""
        self._job, self._stations = job, stations
        self._found: Foretold | None = None
        places = places_of(job)
        if len(places) == 1 and (places[0].is_here or job.plan.gpu):
            stations.gathered = Gathered()

    def lines(self, *, rows: int, limits: Limits) -> list[str]:
        """The forecast in words, and no more rows are kept; nothing where there is none.

        Args:
            rows: to be asked in this start.
        """
        gathered, self._stations.gathered = self._stations.gathered, None
        if gathered is None or not rows:
            return []
        self._found = next(prospects(self._job, gathered, limits, rows=rows), None)
        return list(brief_lines(self._found)) if self._found is not None else []

    def said(self) -> Forecast | None:
        """What was said, in seconds; None where nothing was."""
        found = self._found
        if found is None or not found.fit.parallel:
            return None
        return Forecast(found.seconds, found.low_s, found.high_s, found.bounds.ideal_s)
