"""What happens between us and the endpoints -> counts and sentences for people.

Promises: what is told once is not told again; no row text, no keys.
Knows nothing of: who listens. Counts are read from another thread than they are written in.
Memory: a dozen numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rowmill import errors
from rowmill.engines.http_lanes import Lane
from rowmill.engines.http_wire import Unreachable

_TOLERANCE_SHARE, _TOLERANCE_TOKENS = 0.05, 16
"""A count of tokens that differs by no more is as good as ours: templates and BOS are the server's."""
_LEAST_COUNTED = 100
_AHEAD = 1.25
"""Windows grow before the next word of them arrives."""
_MOST_OFF = 0.1


class Told:
    """Counts of one run of the engine."""

    def __init__(self, *, finds_seats: bool = False, texts: int = 1) -> None:
        """Counts from zero on.

        Args:
            finds_seats: How much endpoints take is found, not given.
            texts: Rows in one request.
        """
        self._finds_seats, self._texts = finds_seats, texts
        self.retries: Counter[str] = Counter()
        self.notes: list[str] = []
        self.in_flight = self.seats = 0
        self._counted = self._off = 0
        self._is_off_told = False
        self._down: set[str] = set()

    def count_retry(self, error: errors.Transient) -> None:
        """A request that failed in passing is made again."""
        self.retries[_cause(error)] += 1

    def count_tokens(self, ours: int, theirs: int) -> None:
        """Compare an endpoint's count of a prompt with our own, where both are there."""
        if not ours or not theirs or self._is_off_told:
            return
        self._counted += 1
        self._off += abs(ours - theirs) > max(_TOLERANCE_TOKENS, _TOLERANCE_SHARE * ours)
        if self._counted >= _LEAST_COUNTED and self._off > _MOST_OFF * self._counted:
            self._is_off_told = True
            self.notes.append(
                f"`usage` of {self._off} of {self._counted} rows differs from our own count (last: {theirs}"
                f" tokens, ours {ours}): see whether `engine.tokenizer` is that of the model served"
            )

    def look(self, lanes: Sequence[Lane]) -> None:
        """Tell endpoints that fell, or came back."""
        self.in_flight = sum(lane.in_flight for lane in lanes)
        self.seats = int(_AHEAD * self._texts * sum(lane.window.limit for lane in lanes))
        down = {lane.root for lane in lanes if lane.down_since >= 0}
        for lane in lanes:
            if lane.root in down - self._down:
                self.notes.append(
                    f"endpoint `{lane.root}` is down: {lane.reason}; its rows wait, or go elsewhere"
                )
            elif lane.root in self._down - down:
                self.notes.append(f"endpoint `{lane.root}` is back")
        self._down = down

    def counters(self) -> dict[str, Any]:
        """Fields of `channel.Gauge`."""
        return {
            "running": self.in_flight,
            "seats": self.seats if self._finds_seats else 0,
            "retries": dict(self.retries),
            "notes": list(self.notes),
        }


def _cause(error: errors.Transient) -> str:
    status = error.fields.get("status")
    if status:
        return f"HTTP {status}"
    if isinstance(error, Unreachable):
        return "no connection"
    return "time-out" if isinstance(error, errors.TimedOut) else "cut or unreadable answer"
