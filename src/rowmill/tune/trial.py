"""One start of the engines: rows of the job go through, with one number of rows in flight after the other.

Promises: a rate is of the steady state: it counts from when nine of ten of the first rows that were sent are answered;
every row that is sent is waited for, within reason, and handed on; engines are ended with all they started.
Knows nothing of: which settings come next, what becomes of answers.
Threads: a receiver of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from rowmill.config import EngineConfig
from rowmill.engines import place
from rowmill.engines.care import Care
from rowmill.engines.fleet import Fleet
from rowmill.feed import Feed
from rowmill.forecast.steady import Rate, Values, steady_spans
from rowmill.outcomes import FAILED, Outcomes
from rowmill.rows import Limits, Prompts
from rowmill.size.work import DECODE_WEIGHT

TICK_S = 0.1
AHEAD_S = 0.5
"""So long rows wait before full seats: enough to keep them full, and few to see through at the end of a turn."""
WARM_SHARE = 0.9
LOOK_S = 0.5
SEEN_SHARE, LEAST_SEEN_S = 0.98, 3.0
"""Of the rows under way at the end of a turn, so many must be answered before its rate is taken."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long one setting is run."""

    least_s: float = 5.0
    most_s: float = 90.0
    share: float = 0.05
    """The interval is narrow enough once half of it is so small a part of the rate."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one number of rows in flight did."""

    in_flight: int
    rate: Rate
    """Work, in tokens of a prompt."""
    rows_s: float
    tokens_s: float
    """Prompts and answers."""
    hit_rate: float
    kv_use: float = 0.0
    """The most of the KV cache that was in use; 0 where the engine does not tell."""
    preemptions: int = 0


class _Turn(msgspec.Struct):
    """One number of rows in flight, while it is run."""

    in_flight: int
    patience: Patience
    begun: float
    sent: int = 0
    warm: float = 0.0
    """From when on the state is steady; 0: it is not yet."""
    looked: float = 0.0


class _Answered(msgspec.Struct):
    """Rows that were answered, as columns."""

    begins: list[float] = []
    ends: list[float] = []
    work: list[float] = []
    tokens: list[tuple[int, int, int]] = []
    """Prompt, cached, output."""

    def columns(self) -> tuple[Values, Values, Values]:
        """Begins, ends, work."""
        return np.array(self.begins), np.array(self.ends), np.array(self.work)


class _Taken(msgspec.Struct, rename={"seconds": "rowmill_seconds"}):
    """What a line of an outcome says of its row's time."""

    seconds: float = 0.0


_decode = msgspec.json.Decoder(_Taken).decode


class Trial:
    """See the module."""

    def __init__(
        self,
        engine: EngineConfig,
        *,
        log: Path,
        care: Care,
        put: Callable[[Outcomes], None],
        record: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Engines of these settings, not started.

        Args:
            put: takes outcomes, in the receiver's thread.
            record: where their process groups are noted, so that orphans are found.
        """
        self.came_down = False
        """Whether it ran out of memory, so that what was measured is not what was asked for."""
        watched = msgspec.structs.replace(care, keep=self._came_down)
        self._is_stopping = care.is_stopping
        self.placement = place(engine)
        self._fleet = Fleet(self.placement.replicas, log=log, record=record, care=watched)
        self._put, self._clock = put, clock
        self._feed: Feed | None = None
        self._limits = Limits()
        self._answered = _Answered([], [], [], [])
        self._flying: set[int] = set()
        self._changed = threading.Condition()
        self._first: set[int] = set()
        """Rows that must be answered before the state is steady."""
        self._error: BaseException | None = None
        self._receiver: threading.Thread | None = None
        self.start_s = 0.0
        self._filling = (0.0, 0.0)
        """From the first row sent to where the first state was steady."""
        self._emptied_from = 0.0
        """When the last row was sent."""

    @property
    def logs(self) -> list[Path]:
        """What engines wrote."""
        return self._fleet.logs

    @property
    def gpus(self) -> int:
        """GPUs that the engines have; 1 where there are none."""
        seen = {
            one.environment.get("CUDA_VISIBLE_DEVICES", "") for one in self.placement.replicas
        }
        return len({gpu for group in seen for gpu in group.split(",")})

    def start(self) -> Limits:
        """Start the engines.

        Raises:
            ConfigError, EngineDied: they cannot be started with these settings.
        """
        began = self._clock()
        self._limits = self._fleet.start()
        self.start_s = self._clock() - began
        self._feed = Feed(self._limits, prove_rows=0)
        self._receiver = threading.Thread(
            target=self._receive, name="rowmill-receive", daemon=True
        )
        self._receiver.start()
        return self._limits

    def measure(
        self, rows: Iterator[Prompts], in_flight: int, patience: Patience
    ) -> Measured | None:
        """Run rows, so many at once, until the rate is known well enough; None where there were too few.

        Raises:
            EngineDied: no engine is left.
        """
        feed = self._feed
        assert feed is not None
        feed.relimit(msgspec.structs.replace(self._limits, seats=in_flight), ahead_s=AHEAD_S)
        self._fleet.hold(in_flight if in_flight < self._limits.seats else 0)
        # What waits from a larger number is no part of this one.
        while not (feed.wait_room(0, TICK_S) or self._is_stopping()):
            self._raise_error()
        turn = _Turn(in_flight, patience, begun=self._clock())
        with self._changed:
            self._first = set()
        while not (self._is_enough(turn) or self._is_stopping()):
            batch = _taken(rows, feed.batch_rows)
            if batch is None:
                break
            self._send(batch, turn)
        stop = self._clock()
        if not self._filling[1]:
            self._filling = (turn.begun, turn.warm or stop)
        self._see_through(rows, turn)
        self._emptied_from = self._clock()
        return self._measured(in_flight, turn.warm or turn.begun, stop)

    def _see_through(self, rows: Iterator[Prompts], turn: _Turn) -> None:
        """Wait until the rows that are under way are answered, seats full meanwhile: a rate must count all of them."""
        feed = self._feed
        assert feed is not None
        with self._changed:
            self._first = set(self._flying)
            least = (1 - SEEN_SHARE) * len(self._first)
        give_up_at = self._clock() + max(LEAST_SEEN_S, turn.patience.most_s / 2)
        while not self._is_stopping() and self._clock() < give_up_at:
            with self._changed:
                if len(self._first) <= least:
                    return
            batch = _taken(rows, feed.batch_rows)
            if batch is None:
                feed.wait_idle(TICK_S)
                self._raise_error()
            else:
                self._send(batch, turn)

    def _send(self, batch: Prompts, turn: _Turn) -> None:
        """Give rows to the engines once there is room."""
        feed = self._feed
        assert feed is not None
        if turn.sent < turn.in_flight:
            with self._changed:
                self._first.update(batch.keys)
        while not feed.wait_room(len(batch), TICK_S):
            self._raise_error()
            if self._is_stopping():
                return
        turn.sent += len(batch)
        with self._changed:
            self._flying.update(batch.keys)
        feed.sent(len(batch), len(batch.ids))
        self._fleet.submit(batch)

    def _is_enough(self, turn: _Turn) -> bool:
        """Whether the time is up, or the rate known."""
        now, patience = self._clock(), turn.patience
        if now - turn.begun >= patience.most_s:
            return True
        if not turn.warm:
            if self._is_warm(turn) or now - turn.begun > patience.most_s / 2:
                turn.warm = turn.looked = now
            return False
        if now - turn.warm < patience.least_s or now - turn.looked < LOOK_S:
            return False
        turn.looked = now
        begins, ends, work = self._columns()
        recent = ends > turn.warm
        # Longer rows than most may be under way still: they are waited for before the rate counts.
        usual_s = float(np.quantile((ends - begins)[recent], 0.9)) if recent.any() else 0.0
        rate = steady_spans(begins, ends, work, turn.warm, now - usual_s)
        return rate is not None and rate.share <= patience.share

    def settle(self, most_s: float) -> None:
        """Wait for rows in flight, so long at most."""
        assert self._feed is not None
        give_up_at = self._clock() + most_s
        while self._feed.in_flight > 0 and self._clock() < give_up_at:
            self._raise_error()
            if self._is_stopping():
                break
            self._feed.wait_idle(TICK_S)

    def edges_s(self, rate: Rate) -> float:
        """What filling the seats and emptying them took, beyond the work that was done meanwhile at this rate."""
        begins, ends, work = self._columns()
        if not len(ends) or not rate.mean:
            return 0.0
        spans = (
            self._filling,
            (self._emptied_from, max(self._emptied_from, float(ends.max()))),
        )
        lost = 0.0
        for begin, stop in spans:
            shares = np.clip(stop - begins, 0, ends - begins) - np.clip(
                begin - begins, 0, ends - begins
            )
            done = float((shares / np.maximum(ends - begins, 1e-9)) @ work)
            lost += max(0.0, stop - begin - done / rate.mean)
        return lost

    def close(self) -> None:
        """End the engines."""
        self._fleet.close()
        if self._receiver is not None:
            self._receiver.join()

    def _came_down(self, _step: object) -> None:
        self.came_down = True

    def _is_warm(self, turn: _Turn) -> bool:
        if turn.sent < turn.in_flight:
            return False
        with self._changed:
            return len(self._first) <= (1 - WARM_SHARE) * turn.in_flight

    def _columns(self) -> tuple[Values, Values, Values]:
        with self._changed:
            return self._answered.columns()

    def _measured(self, in_flight: int, warm: float, stop: float) -> Measured | None:
        with self._changed:
            begins, ends, work = self._answered.columns()
            tokens = np.array(self._answered.tokens, np.float64)
        rate = steady_spans(begins, ends, work, warm, stop)
        if rate is None:
            return None
        # Rows and tokens are told at the pace of the work: the rows that ended in the time are of another mix than usual.
        inside = (ends > warm) & (begins < stop)
        prompt, cached, output = tokens[inside].sum(axis=0).tolist()
        share = rate.mean / float(work[inside].sum())
        gauges = self._fleet.gauges
        return Measured(
            in_flight=in_flight,
            rate=rate,
            rows_s=int(inside.sum()) * share,
            tokens_s=(prompt + output) * share,
            hit_rate=cached / prompt if prompt else 0.0,
            kv_use=max((gauge.kv_use for gauge in gauges), default=0.0),
            preemptions=sum(gauge.preemptions for gauge in gauges),
        )

    def _receive(self) -> None:
        try:
            for outcomes in self._fleet.outcomes():
                if len(outcomes):
                    self._take(outcomes)
        # Raised again in the thread that measures.
        except BaseException as error:
            self._error = error

    def _take(self, outcomes: Outcomes) -> None:
        self._put(outcomes)
        now = self._clock()
        keys = outcomes.keys.tolist()
        good = ((outcomes.marks & FAILED) == 0).tolist()
        seconds = [_decode(line).seconds for line in outcomes.lines.split(b"\n")[:-1]]
        tokens = list(zip(*outcomes.tokens.tolist(), strict=True))
        with self._changed:
            for i in [i for i, is_good in enumerate(good) if is_good]:
                prompt, _, output = tokens[i]
                self._answered.begins.append(now - seconds[i])
                self._answered.ends.append(now)
                self._answered.work.append(prompt + DECODE_WEIGHT * output)
                self._answered.tokens.append(tokens[i])
            self._first.difference_update(keys)
            self._flying.difference_update(keys)
        prompt, cached, output = outcomes.tokens.sum(axis=1, dtype=np.int64).tolist()
        assert self._feed is not None
        self._feed.answered(
            len(outcomes), prompt_tokens=prompt, cached_tokens=cached, output_tokens=output
        )

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _taken(rows: Iterator[Prompts], number: int) -> Prompts | None:
    """About so many rows, whole pieces; None where there are no more."""
    parts: list[Prompts] = []
    while sum(map(len, parts)) < number:
        part = next(rows, None)
        if part is None:
            break
        parts.append(part)
    return Prompts.join(parts) if parts else None
