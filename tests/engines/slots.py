"""An endpoint with so many slots, and faults of its own, simulated: virtual time, real windows."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import Any

from rowmill.engines.http_lanes import Lane
from rowmill.engines.http_window import Window

TRIP_S = 0.001
TICK_S = 0.1


@dataclass
class Endpoint:
    """What it is like."""

    slots: int
    service_s: float
    queues: bool = False
    """Requests above the slots wait; else they are refused."""
    rate_429: float = 0.0
    rate_other: float = 0.0
    rate_hang: float = 0.0
    timeout_s: float = 2.0


@dataclass
class Seen:
    """What came of it."""

    rows: int = 0
    requests: int = 0
    over: int = 0
    """Requests refused because all slots were taken."""
    seconds: float = 0.0
    limits: list[int] = field(default_factory=list)
    """The window, each tick."""

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


class Simulation:
    """Rows without end, for so long."""

    def __init__(self, endpoint: Endpoint, window: Window, *, seed: int = 0) -> None:
        self._endpoint, self._draw = endpoint, random.Random(seed)
        self._lane = Lane("http://x", window, retry_share=0.5)
        self._events: list[tuple[float, int, str, int]] = []
        self._number = self._working = 0
        self._waiting: list[int] = []

    def run(self, until: float, *, count_from: float = 0.0) -> Seen:
        seen, now = Seen(seconds=until - count_from), 0.0
        self._at(0.0, "tick", 0)
        while now < until:
            while self._lane.room(now) > 0:
                self._send(now, seen)
            now, _, what, key = heapq.heappop(self._events)
            before = seen.rows
            self._take(now, what, key, seen)
            if now < count_from:
                seen.rows, seen.requests, seen.over = before * 0, 0, 0
        return seen

    def _at(self, when: float, what: str, key: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, what, key))

    def _send(self, now: float, seen: Seen) -> None:
        endpoint, key = self._endpoint, self._number
        seen.requests += 1
        self._lane.begin(key, now)
        fault = self._fault()
        if fault:
            after = endpoint.timeout_s if fault == "hang" else TRIP_S
            self._at(now + after, fault, key)
        elif self._working < endpoint.slots:
            self._work(now, key)
        elif endpoint.queues:
            self._waiting.append(key)
            self._number += 1
        else:
            seen.over += 1
            self._at(now + TRIP_S, "refused", key)

    def _work(self, now: float, key: int) -> None:
        self._working += 1
        self._at(now + self._endpoint.service_s * self._draw.uniform(0.8, 1.2), "answered", key)

    def _fault(self) -> str:
        endpoint, at = self._endpoint, self._draw.random()
        for share, what in (
            (endpoint.rate_429, "refused"),
            (endpoint.rate_other, "broken"),
            (endpoint.rate_hang, "hang"),
        ):
            if at < share:
                return what
            at -= share
        return ""

    def _take(self, now: float, what: str, key: int, seen: Seen) -> Any:
        lane = self._lane
        if what == "tick":
            lane.tick(now)
            seen.limits.append(lane.window.limit)
            self._at(now + TICK_S, "tick", 0)
            return
        if what == "cooled":
            lane.cooled()
            return
        if what == "answered":
            self._working -= 1
            seen.rows += 1
            lane.answered(key, now)
            if self._waiting:
                self._work(now, self._waiting.pop(0))
        if what in ("refused", "hang"):
            self._at(now + lane.refused(), "cooled", 0)
        if what in ("broken", "hang"):
            lane.must_retry(key, now, what)
        lane.end(key)
