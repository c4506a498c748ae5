"""Rows of the whole input -> what sorting all of it would bring, said by `check` before anything is sorted.

Promises: what a run would do is what is told; where a model and a GPU are known, rows of one stretch of the sorted
order are played through beside rows as windows have them.
Knows nothing of: lots on the disk.
Memory: one window, `SAMPLE_ROWS` rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rowmill.executors.lots import is_worth_a_look
from rowmill.executors.opening import Opened
from rowmill.forecast.foretold import Foretold
from rowmill.forecast.gathered import SAMPLE_ROWS
from rowmill.forecast.spread import Spread
from rowmill.pipeline import Stations
from rowmill.plan import Lever
from rowmill.plan.lots import Stretch
from rowmill.prospect import prospects
from rowmill.rows import Request
from rowmill.shown.spans import duration


class Far:
    """What rows share that stand far apart."""

    def __init__(self, opened: Opened, stations: Stations) -> None:
        self._opened, self._stations = opened, stations
        self._spread = Spread()
        self._stretch = Stretch(opened.cut.num_lines, SAMPLE_ROWS)

    def add(self, requests: Sequence[Request]) -> None:
        """One window."""
        self._spread.add(requests)
        self._stretch.add(requests)

    def told(self, forecasts: list[Foretold], rows: int) -> tuple[list[Foretold], Lever]:
        """The forecasts of what a run would do, and the verdict.

        Args:
            forecasts: for windows as they are.
            rows: to be asked.
        """
        lever = self._spread.verdict()
        is_worth = is_worth_a_look(self._opened)
        is_asked = self._opened.words.job.plan.sort == "input"
        is_done = is_worth and (lever.is_used or is_asked)
        if not lever.is_used and not is_done:
            return forecasts, lever
        sorted_ = self._sorted(forecasts, rows)
        told, saved_s = "", 0.0
        if sorted_:
            before, after = forecasts[0].seconds, sorted_[0].seconds
            saved_s = before - after
            told = f"; sorted, it takes {duration(after)}, window by window {duration(before)}"
        way = "" if is_done else '; `plan.sort = "input"` sorts it'
        lever = msgspec.structs.replace(
            lever, is_used=is_done, reason=f"{lever.reason}{told}{way}", saved_s=saved_s
        )
        return sorted_ if is_done and sorted_ else forecasts, lever

    def _sorted(self, forecasts: Sequence[Foretold], rows: int) -> list[Foretold]:
        """The same forecasts, were the input sorted: of its own they have the order, and what comes of it."""
        if not any(one.fit.parallel for one in forecasts):
            return []
        gathered = self._stations.tried(self._stretch.requests)
        words = self._opened.words
        found = list(prospects(words.job, gathered, words.limits, rows=rows))
        if len(found) != len(forecasts):
            return []
        return [_beside(one, window) for one, window in zip(found, forecasts, strict=True)]


def _beside(one: Foretold, window: Foretold) -> Foretold:
    return msgspec.structs.replace(
        one,
        bounds=window.bounds,
        # Of a stretch: all rows may share less.
        hit_rate=min(one.hit_rate, window.bounds.hit_rate),
        file_seconds=window.file_seconds,
        file_hit_rate=window.file_hit_rate,
    )
