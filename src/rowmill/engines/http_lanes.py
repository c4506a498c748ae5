"""Endpoints side by side: how each stands, and which one is asked next.

Promises: an endpoint is never asked more at once than its window and the job's seats allow; one that is down gets one
row at a time until it answers, and begins again from a small window; rows that begin alike go to the endpoint that has
their beginning in its cache, unless it has more to do than the others.
Knows nothing of: sockets, bodies beyond their first bytes. The clock is the caller's.
Memory: the rows in flight; 65,536 beginnings.
Source: longest known beginning first, bounded by load, as SGLang's router does it (cache-aware routing, 2024).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import xxhash

from rowmill.engines.http_window import Window

_FREE_RETRIES = 100.0
_PROBE_S, _MAX_PROBE_S = 0.5, 10.0
_AFTER_OUTAGE = 4
"""Requests that an endpoint gets at once when it is back."""
_STUCK_TIMES, _STUCK_S = 5.0, 1.0
"""A request that takes so many times as long as others, and so long at least, waits for its time-out: its seat is lent."""
_MAX_COOL_S = 10.0
_WELL, _RECENT = 0.5, 32.0
_BEGINNINGS = (8192, 4096, 2048, 1024, 512)
"""Bytes of a body that are looked at to see what it shares with others."""
_MOST_BEGINNINGS = 1 << 16
_OVERLOAD, _OVERLOAD_ROWS = 1.25, 4


class Lane:
    """One endpoint."""

    def __init__(self, root: str, window: Window, *, retry_share: float) -> None:
        self.root, self.window = root, window
        self._retry_share = retry_share
        self._retries_left = _FREE_RETRIES
        self._since: dict[int, float] = {}
        """Rows in flight -> when they were asked, the oldest first."""
        self._cooling = self._stuck = 0
        self._cool_times = 1.0
        self.down_since = -1.0
        self.reason = ""
        """Why it is down."""
        self._probe_at = 0.0
        self._probe_s = _PROBE_S
        self._probe: int | None = None
        self.has_answered = False
        self._failing = 1.0
        """Share of the last requests that failed in passing, about."""

    @property
    def is_well(self) -> bool:
        """Whether it answers most of what it is asked."""
        return self._failing < _WELL

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return len(self._since)

    def room(self, now: float) -> int:
        """How many more may be asked; none where that is 0 or less."""
        if self.down_since >= 0:
            return int(self._probe is None and now >= self._probe_at)
        room = min(self.window.ceiling, self.window.limit + self._stuck)
        return room - len(self._since) - self._cooling

    def begin(self, key: int, now: float) -> None:
        """A row is asked."""
        self._since[key] = now
        self.window.asked()
        if self.down_since >= 0:
            self._probe = key

    def end(self, key: int) -> None:
        """It has an end, whichever."""
        self._since.pop(key, None)
        if self._probe == key:
            self._probe = None

    def answered(self, key: int, now: float) -> None:
        """It was answered, or refused for good: the endpoint is well."""
        began = self._since[key]
        self.has_answered = True
        self._failing -= self._failing / _RECENT
        self._cool_times = max(1.0, self._cool_times / 2)
        self._retries_left = min(_FREE_RETRIES, self._retries_left + self._retry_share)
        if self.down_since >= 0:
            self.down_since, self._probe_s = -1.0, _PROBE_S
            self._retries_left = max(self._retries_left, _FREE_RETRIES / 10)
            self.window.reset(_AFTER_OUTAGE, now)
        self.window.answered(now - began, is_full=self.room(now) <= 0)

    def failed(self) -> None:
        """A request failed in passing, whichever way."""
        self._failing += (1 - self._failing) / _RECENT

    def refused(self) -> float:
        """It was asked too much. Returns: seconds that a seat is to stay empty."""
        self._cooling += 1
        seconds = min(_MAX_COOL_S, self.window.refused(len(self._since) - 1) * self._cool_times)
        if self.window.limit == 1:
            self._cool_times = min(self._cool_times * 2, 1e6)
        return seconds

    def cooled(self) -> None:
        """That time is over."""
        self._cooling -= 1

    def must_retry(self, key: int, now: float, reason: str) -> None:
        """A request failed in passing: too many such and the endpoint is taken for down."""
        self._retries_left -= 1
        if self._retries_left < 0 or self.down_since >= 0:
            self.fall(key, now, reason)

    def fall(self, key: int, now: float, reason: str) -> None:
        """It is down, or still is."""
        self.reason = reason
        if self.down_since < 0:
            self.down_since, self._probe_s = now, _PROBE_S
        elif self._probe == key:
            self._probe_s = min(2 * self._probe_s, _MAX_PROBE_S)
        else:
            return  # asked before it fell
        self._probe_at = now + self._probe_s * (0.5 + random.random())

    def tick(self, now: float) -> None:
        """Look at what is in flight, and at the window."""
        limit_s = max(_STUCK_S, _STUCK_TIMES * self.window.mean_s)
        self._stuck = 0
        if self.window.mean_s:
            for began in self._since.values():
                if now - began < limit_s:
                    break
                self._stuck += 1
        self.window.tick(now)


class Lanes:
    """All endpoints of a job."""

    def __init__(self, lanes: Sequence[Lane], *, seats: int) -> None:
        self.all, self._seats = list(lanes), seats
        self._lane_of: dict[int, Lane] = {}

    @property
    def ceiling(self) -> int:
        """Most requests at once, ever."""
        return min(self._seats, sum(lane.window.ceiling for lane in self.all))

    @property
    def in_flight(self) -> int:
        """Requests without an answer, at all of them."""
        return sum(lane.in_flight for lane in self.all)

    def with_room(self, now: float) -> list[Lane]:
        """Those that may be asked now."""
        if self.in_flight >= self._seats:
            return []
        return [lane for lane in self.all if lane.room(now) > 0]

    def pick(self, free: Sequence[Lane], body: bytes, avoid: Lane | None) -> Lane:
        """The one of `free` to ask: another than the one that just failed, one that knows the beginning, the idlest."""
        if len(self.all) == 1:
            return free[0]
        free = [lane for lane in free if lane is not avoid] or free
        begun = [
            xxhash.xxh3_64_intdigest(body[:size]) for size in _BEGINNINGS if len(body) > size
        ]
        mean = self.in_flight / len(self.all)
        bound = _OVERLOAD * mean + _OVERLOAD_ROWS
        known = [self._lane_of[one] for one in begun if one in self._lane_of]
        found = [lane for lane in known if lane in free and lane.in_flight < bound]
        lane = found[0] if found else min(free, key=_load)
        if len(self._lane_of) >= _MOST_BEGINNINGS:
            self._lane_of.clear()
        self._lane_of.update(dict.fromkeys(begun, lane))
        return lane

    def down_for(self, now: float) -> float:
        """Seconds for which all of them have been down; negative where one is up."""
        if any(lane.down_since < 0 for lane in self.all):
            return -1.0
        return now - max(lane.down_since for lane in self.all)


def _load(lane: Lane) -> tuple[bool, float, float]:
    return lane.down_since >= 0, lane.in_flight / lane.window.limit, random.random()
