"""Answers, refusals, latencies -> how many requests one endpoint is to have at once.

Promises: never above the ceiling nor below one; it grows only while more requests at once bring more answers a second;
refusals (429) beyond those that come whatever is asked make it shrink, at most once in an interval.
Knows nothing of: sockets, rows. The clock is the caller's.
Memory: a dozen numbers.
Source: additive increase, multiplicative decrease (Chiu and Jain, 1989); growth stops where the rate does, as in BBR
(Cardwell and others, 2016).
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

_MIN_INTERVAL_S = 0.25
_MAX_INTERVAL_S = 10.0
_LEAST_ENDS = 16
"""Requests that an interval must have seen, for shares to mean anything."""
_WEATHER_CAP = 0.12
"""Refusals that come whatever is asked are a smaller share than this."""
_FIRST_SHARES, _FIRST_WEATHER = 8, 0.1
_SIGMAS, _CALM, _BIAS = 2.0, 0.34, 0.6
_REMEMBERED = 24
"""Intervals: longer than from one decrease to the next."""
_RECENT = 16.0
_FIRST_COOL_S = 0.02
"""Times the refusals so far, while nobody knows how long an answer takes."""
_COOLED, _LEAST_COOL, _LEAST_WEATHER = 4.0, 0.4, 0.05
"""A seat that was refused stays empty as long as an answer takes where a quarter more than usual is refused."""
_GROWTH, _SLOW_GROWTH, _NEAR = 6.0, 80.0, 0.9
"""A window grows by one in so many, at least by one, in each interval; slowly near where it was refused."""
_GAIN, _IN_VAIN, _SURE = 0.03, 1.5, 0.25
"""More answers a second must come by so much, beyond noise, before so many times as many are asked at once."""
_HELD_INTERVALS = 8
"""A window that did not pay is tried again after so many."""


class _Level(NamedTuple):
    """What came at one size of the window, about."""

    limit: float = 0.0
    answers: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.answers / self.seconds if self.seconds else 0.0


_NEVER = _Level()


class Window:
    """The window of one endpoint."""

    def __init__(self, *, start: int, ceiling: int, now: float) -> None:
        self.ceiling = ceiling
        self._limit = float(min(start, ceiling))
        self._known = math.inf
        """Where it was refused last, or was before an outage: it grows fast up to there."""
        self._was_full = False
        self._began = now
        self._asked = self._answers = self._refusals = self._others = 0
        self._seconds = 0.0
        self._recent = 0.0
        """Share of refusals among the last requests, about."""
        self._shares: deque[float] = deque([_FIRST_WEATHER] * _FIRST_SHARES, _REMEMBERED)
        self._paid = _NEVER
        """Where growing last paid."""
        self._here = _NEVER
        """Where it stands since."""
        self._held = 0
        self._ends = 0.0
        """Requests of an interval, about."""
        self.mean_s = 0.0
        """How long an answer takes, smoothed; 0 before the first."""

    @property
    def limit(self) -> int:
        """Requests to have at once."""
        return max(1, int(self._limit))

    def asked(self) -> None:
        """A request goes out."""
        self._asked += 1

    def answered(self, seconds: float, *, is_full: bool) -> None:
        """An answer came after so long; `is_full`: no further request was allowed meanwhile."""
        self._answers += 1
        self._seconds += seconds
        self._was_full |= is_full
        self._recent -= self._recent / _RECENT
        if not self.mean_s:
            self.mean_s = seconds

    def refused(self, others: int) -> float:
        """The endpoint said that it is asked too much. Returns: seconds that the seat is to stay empty.

        A seat above what the endpoint takes would else be refused a thousand times before the interval is over.

        Args:
            others: requests that it works on meanwhile.
        """
        self._refusals += 1
        self._others += others
        self._recent += (1 - self._recent) / _RECENT
        excess = _COOLED * (self._recent - max(self._weather(), _LEAST_WEATHER))
        whole_s = self.mean_s or min(1.0, _FIRST_COOL_S * self._refusals)
        return whole_s * min(1.0, max(_LEAST_COOL, excess))

    def crowded(self) -> None:
        """The endpoint's own gauges say that rows wait there: no growth now."""
        self._held = max(self._held, 2)

    def reset(self, start: int, now: float) -> None:
        """Begin from a small window, as after an outage."""
        self._known = max(self._limit, float(start))
        self._limit = float(min(start, self.ceiling))
        self._held, self._paid, self._here = 0, _NEVER, _NEVER
        self._begin(now)

    def tick(self, now: float) -> None:
        """Look at the interval, if it is over."""
        passed_s = now - self._began
        ends = self._answers + self._refusals
        least_s = max(_MIN_INTERVAL_S, min(2 * self.mean_s, _MAX_INTERVAL_S))
        if (
            passed_s < least_s
            or (ends < _LEAST_ENDS and passed_s < _MAX_INTERVAL_S)
            or not ends
        ):
            return
        if self._answers:
            mean = self._seconds / self._answers
            self.mean_s += 0.5 * (mean - self.mean_s)
        # A refusal comes at once, an answer takes its time: at the start there would be refusals alone.
        known = max(ends, self._asked)
        self._ends += 0.25 * (known - self._ends)
        self._change(self._refusals / known, known, passed_s)
        self._begin(now)

    def _change(self, share: float, ends: int, passed_s: float) -> None:
        here = self._here
        self._here = _Level(self._limit, here.answers + self._answers, here.seconds + passed_s)
        weather = self._weather()
        self._shares.append(share)
        noise = _SIGMAS * math.sqrt(max(weather, 0.02) * (1 - weather) / ends)
        if share > weather + noise + 0.02:
            factor = 1 - 0.5 * max(share - weather, 0.2)
            taken = self._others / max(1, self._refusals) / self._limit
            # What was worked on while others were refused is about what the endpoint takes.
            known = max(0.5, taken) if taken < factor else 1.0
            self._shrink(max(0.5, min(factor, taken)), self._limit * known)
        elif self._held:
            self._held -= 1
            if not self._held:
                self._paid, self._here = self._here, _NEVER
        elif self._was_full and self._limit < self.ceiling:
            self._grow()

    def _grow(self) -> None:
        paid, here = self._paid, self._here
        noise = 1 / math.sqrt(max(1, here.answers)) + 1 / math.sqrt(max(1, paid.answers))
        if here.rate > (1 + _GAIN + noise) * paid.rate:
            self._paid, self._here = here, _NEVER
        elif self._limit >= _IN_VAIN * paid.limit and noise < _SURE:
            self._limit, self._held, self._here = paid.limit, _HELD_INTERVALS, _NEVER
            self._known = min(self._known, here.limit)
            return
        is_near = self._limit >= _NEAR * self._known
        step = max(1.0, self._limit / (_SLOW_GROWTH if is_near else _GROWTH))
        self._limit = min(float(self.ceiling), self._limit + step)

    def _shrink(self, factor: float, known: float) -> None:
        self._limit = max(1.0, self._limit * factor)
        self._known = known
        self._paid = self._paid if self._paid.limit < self._limit else _NEVER
        self._here = _NEVER

    def _weather(self) -> float:
        """Share of refusals that come whatever is asked: what the calmer intervals had."""
        calm = sorted(self._shares)[: max(1, int(len(self._shares) * _CALM))]
        mean = sum(calm) / len(calm)
        # The lowest of many draws lie below what they are drawn from.
        spread = math.sqrt(max(mean, 0.02) * (1 - mean) / max(_LEAST_ENDS, self._ends))
        return min(_WEATHER_CAP, mean + _BIAS * spread)

    def _begin(self, now: float) -> None:
        self._began, self._was_full = now, False
        self._asked = self._answers = self._refusals = self._others = 0
        self._seconds = 0.0
