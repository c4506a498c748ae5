"""How many rows may be in flight: the seats, plus what is admitted in about two seconds, nothing extra in the tail.

Promises: before `prove_rows` rows are answered no more than the seats are in flight, so that a job whose rows
all fail is stopped having asked little; tokens in flight stay under the KV pool where its size is known.
Knows nothing of: what a row is. The clock is given, so tests own time.
Source: simulated over vLLM's scheduler: a bounded window costs nothing, a reserve of 1.0 to 1.1 of the pool keeps from
preemptions; vLLM's own `run_batch` keeps twice the seats in flight.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rowmill.rows import Limits

AHEAD_S = 2.0
"""So long rows wait before the engine, where nobody waits for them."""
MAX_AHEAD_ROWS = 16_384
POOL_SHARE = 1.1
RATE_WEIGHT = 0.3


class Feed:
    """Counts rows in and out of the engine and says how many more it may be given."""

    def __init__(
        self,
        limits: Limits,
        *,
        prove_rows: int,
        ahead_s: float = AHEAD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._prove_rows, self._clock = limits, prove_rows, clock
        self._ahead_s = ahead_s
        self._rate = 0.0
        """Rows answered a second, smoothed."""
        self._since, self._answered_since = clock(), 0
        self.in_flight = self.answered_rows = self.sent_rows = self._sent_tokens = 0
        self._prompt_tokens = self._cached_tokens = self._output_tokens = 0
        """Of rows answered: what was found in the cache, rows share and do not hold apiece."""
        self._sent_outputs = 0
        """Tokens that rows given to the engine are to generate, as far as that is known beforehand."""
        self._changed = threading.Condition()
        self._moved_at: float | None = None
        """When rows last came or went, from the first one on."""
        self._is_tail = False
        self.row_s = 0.0
        """Seconds times rows in flight."""
        self.blocked_s = self.active_s = self.empty_s = self.tail_s = self.tail_empty_s = 0.0
        """How long the engine had no room; since it got its first row; seconds times the share of seats that had no
        row, while rows were left to give; since none is left, and the same then."""

    @property
    def seats(self) -> int:
        """Rows that the engine works on at once."""
        return self._limits.seats

    @property
    def target_rows(self) -> int:
        """Rows that should be in flight now."""
        seats = self._limits.seats
        if self.answered_rows < self._prove_rows:
            return seats
        return seats + min(int(self._rate * self._ahead_s), MAX_AHEAD_ROWS)

    @property
    def batch_rows(self) -> int:
        """Rows worth a message of their own: few where seats are few, many where rows are quick.

        So many seats may stand empty before the next message; a quarter of them cost 8% of a run of 2,000 rows.
        """
        return max(1, min(2048, self.target_rows // 16))

    def relimit(self, limits: Limits, *, ahead_s: float | None = None) -> None:
        """Go by what the engine says of itself now that it is open.

        Args:
            ahead_s: so long rows may wait before it from now on; None: as before.
        """
        with self._changed:
            self._limits = limits
            self._ahead_s = self._ahead_s if ahead_s is None else ahead_s
            self._changed.notify_all()

    def wait_room(self, rows: int, timeout_s: float) -> bool:
        """Wait until `rows` more may go to the engine, or the time is up. An idle engine has room for any batch."""
        with self._changed:
            if self._has_room(rows):
                return True
            began = self._clock()
            has_room = self._changed.wait_for(lambda: self._has_room(rows), timeout_s)
            self.blocked_s += self._clock() - began
            return has_room

    def pass_time(self) -> None:
        """Bring the times up to now."""
        with self._changed:
            self._pass_time()

    def no_more(self) -> None:
        """Say that all rows are given: seats stand empty from now on because none is left."""
        with self._changed:
            self._pass_time()
            self._is_tail = True

    def sent(self, rows: int, tokens: int, outputs: int = 0) -> None:
        """Count rows given to the engine, their prompt tokens, and those of their answers where these are known."""
        with self._changed:
            self._pass_time()
            self._sent_outputs += outputs
            self.in_flight += rows
            self.sent_rows += rows
            self._sent_tokens += tokens

    def answered(
        self,
        rows: int,
        *,
        prompt_tokens: int = 0,
        cached_tokens: int = 0,
        output_tokens: int = 0,
    ) -> None:
        """Count rows answered, and learn the rate, what they share and how long answers are."""
        with self._changed:
            self._pass_time()
            self._output_tokens += output_tokens
            self._prompt_tokens += prompt_tokens
            self._cached_tokens += cached_tokens
            self.in_flight -= rows
            self.answered_rows += rows
            self._learn(rows)
            self._changed.notify_all()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight, or the time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: self.in_flight <= 0, timeout_s)

    def _pass_time(self) -> None:
        now = self._clock()
        if self._moved_at is None:
            self._moved_at = now
        passed_s, self._moved_at = now - self._moved_at, now
        self.row_s += passed_s * self.in_flight
        empty_s = passed_s * max(0.0, 1 - self.in_flight / max(self._limits.seats, 1))
        if not self._is_tail:
            self.active_s += passed_s
            self.empty_s += empty_s
        elif self.in_flight > 0:
            self.active_s += passed_s
            self.tail_s += passed_s
            self.tail_empty_s += empty_s

    def _has_room(self, rows: int) -> bool:
        if self.in_flight <= 0:
            return True
        if self.in_flight + rows > self.target_rows:
            return False
        pool = self._limits.kv_tokens
        return not pool or self._held_tokens() < POOL_SHARE * pool

    def _held_tokens(self) -> float:
        """Tokens that rows in flight will hold at their ends, about: what they do not share of prompts, and answers."""
        own_share = 1 - self._cached_tokens / max(self._prompt_tokens, 1)
        prompt = self._sent_tokens / max(self.sent_rows, 1) * own_share
        known = self._sent_outputs / max(self.sent_rows, 1)
        answer = known or self._output_tokens / max(self.answered_rows, 1)
        return self.in_flight * (prompt + answer)

    def _learn(self, rows: int) -> None:
        self._answered_since += rows
        passed_s = self._clock() - self._since
        if passed_s >= 0.25:
            rate = self._answered_since / passed_s
            self._rate += (rate - self._rate) * RATE_WEIGHT
            self._since, self._answered_since = self._clock(), 0
