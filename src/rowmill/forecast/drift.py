"""Answers as they come -> whether they are as long as those before, row for row alike.

Promises: the order in which rows are asked raises no alarm: rows are compared with rows that ask alike, within a factor of
1.2 in the lengths of prompts and limits, and only once all rows that were asked together are answered, as short answers
come first; rows unlike any before are learnt, not judged. The same answers in the same order give the same alarm.
Knows nothing of: time, engines.
Memory: a number a row in flight, three a class.
Source: logarithms of lengths, since those are near normal (reference lengths of chats and code are log-normal); a shift of a
mean over the last cohorts, as in a moving-window chart (Shewhart), with the spread between cohorts counted in.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import repeat

import msgspec
import numpy as np

from rowmill.forecast.blocks import Counts
from rowmill.forecast.learned import FINE, Asked, Values
from rowmill.outcomes import FAILED, Outcomes

COHORTS, LEAST_COHORT, MOST_COHORT = 200, 16, 20_000
"""A cohort is half a percent of the job: an alarm within 5% has ten of them."""
LEAST_FACTOR, SIGMAS = 1.4, 5.0
LEAST_ROWS = 48
WINDOW = 8
FEW, ENOUGH = 8, 32
"""Rows of a class before others are judged by it; and after which it is learnt no further."""
SUSPICIOUS = 3.0
LEAST_SPREAD = 0.1
_BITS = 24


class Alarm(msgspec.Struct, frozen=True):
    """Answers changed."""

    factor: float
    """So many times as long as before."""
    since_row: int
    """Rows asked before the first of those that show it."""
    at_row: int
    """Rows answered when it was seen."""


class _Class(msgspec.Struct):
    """Logarithms of answers that rows of one class had."""

    rows: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.rows


class _Cohort(msgspec.Struct):
    """Rows asked one behind the other."""

    first_row: int
    left: int = 0
    classes: list[Counts] = []
    logs: list[Values] = []


class _Judged(msgspec.Struct, frozen=True):
    """A cohort against those before: sum of differences, and of their squares, rows, and of each class its rows."""

    first_row: int
    difference: float
    squares: float
    rows: int
    rows_of: dict[int, int]


class Drift:
    """The watch over one run's answers."""

    def __init__(self, total_rows: int) -> None:
        self._size = min(max(LEAST_COHORT, total_rows // COHORTS), MOST_COHORT)
        self._of: dict[int, int] = {}
        """Cohort and class of each row in flight."""
        self._cohorts: dict[int, _Cohort] = {}
        self._current = -1
        self._room = 0
        self._asked = self._answered = 0
        self._known: dict[int, _Class] = {}
        self._recent: deque[_Judged] = deque(maxlen=WINDOW)
        self._spreads: list[float] = [0.0, 0.0]
        """Sum, and number, of squared differences over their variances: 1 in the mean, more where cohorts differ."""
        self.alarm: Alarm | None = None
        """The last one."""

    def sent(self, keys: list[int], asked: Asked) -> None:
        """Rows are asked; those whose answers have a fixed length are not watched."""
        free = np.flatnonzero(~asked.is_exact)
        if not len(free):
            return
        classes = asked.classes(FINE)[free]
        rows = [keys[i] for i in free.tolist()]
        start = 0
        while start < len(rows):
            if not self._room:
                self._current += 1
                self._room = self._size
                self._cohorts[self._current] = _Cohort(self._asked, classes=[], logs=[])
            stop = min(len(rows), start + self._room)
            codes = (classes[start:stop] | (self._current << _BITS)).tolist()
            self._of.update(zip(rows[start:stop], codes, strict=True))
            self._cohorts[self._current].left += stop - start
            self._room -= stop - start
            self._asked += stop - start
            start = stop

    def answered(self, outcomes: Outcomes) -> Alarm | None:
        """Rows are answered. Returns: an alarm, if this is where it shows."""
        if not self._of:
            return None
        found = list(map(self._of.pop, outcomes.keys.tolist(), repeat(-1)))
        codes = np.array(found, np.int64)
        is_watched = codes >= 0
        self._answered += int(is_watched.sum())
        numbers = codes >> _BITS
        good = (outcomes.marks & FAILED) == 0
        alarm = None
        for number in np.unique(numbers[is_watched]).tolist():
            here = numbers == number
            cohort = self._cohorts[number]
            cohort.left -= int(here.sum())
            here &= good
            cohort.classes.append(codes[here] & ((1 << _BITS) - 1))
            cohort.logs.append(np.log1p(outcomes.tokens[2][here].astype(np.float64)))
            if not cohort.left and (number != self._current or not self._room):
                alarm = self._judge(self._cohorts.pop(number)) or alarm
        return alarm

    def _judge(self, cohort: _Cohort) -> Alarm | None:
        classes = np.concatenate(cohort.classes)
        logs = np.concatenate(cohort.logs)
        judged = self._judged(cohort.first_row, classes, logs)
        variance = self._variance_of([judged]) if judged is not None else 0.0
        if judged is None or judged.difference**2 <= SUSPICIOUS**2 * variance:
            self._learn(classes, logs)
        if judged is None:
            return None
        self._recent.append(judged)
        alarm = self._alarm()
        if alarm is not None:
            self.alarm = alarm
            self._known.clear()
            self._recent.clear()
        elif variance:
            self._spreads[0] += judged.difference**2 / variance
            self._spreads[1] += 1
        return alarm

    def _judged(self, first_row: int, classes: Counts, logs: Values) -> _Judged | None:
        """A cohort against what is known; None where it is like nothing before."""
        difference, squares, rows_of = 0.0, 0.0, {}
        for one in np.unique(classes).tolist():
            known = self._known.get(one)
            if known is None or known.rows < FEW:
                continue
            here = logs[classes == one] - known.mean
            difference += float(here.sum())
            squares += float(here @ here)
            rows_of[one] = len(here)
        rows = sum(rows_of.values())
        return _Judged(first_row, difference, squares, rows, rows_of) if rows else None

    def _alarm(self) -> Alarm | None:
        """Whether the last cohorts, few or many of them, are surely other than those before."""
        between = self._spreads[0] / self._spreads[1] if self._spreads[1] >= WINDOW else 1.0
        some: list[_Judged] = []
        for judged in reversed(self._recent):
            some.append(judged)
            rows = sum(one.rows for one in some)
            difference = sum(one.difference for one in some)
            shift = difference / rows
            if rows < LEAST_ROWS or abs(shift) < np.log(LEAST_FACTOR):
                continue
            variance = self._variance_of(some) * max(1.0, between)
            if difference**2 >= SIGMAS**2 * variance:
                return self._told(shift)
        return None

    def _told(self, shift: float) -> Alarm:
        """How much, and since when: by the cohort that shows it most, as those before the change are in the sum, too."""
        most = max(self._recent, key=lambda one: one.difference / one.rows * np.sign(shift))
        whole = most.difference / most.rows
        since = next(
            one.first_row for one in self._recent if one.difference / one.rows / whole > 0.5
        )
        return Alarm(float(np.exp(whole)), since, self._answered)

    def _variance_of(self, some: list[_Judged]) -> float:
        """Of the sum of differences: of these rows, and of the means they were held against, which they have in common.

        Rows vary as those before did, or as they do themselves where that is more: a limit may have cut those before.
        """
        rows = sum(one.rows for one in some)
        mean = sum(one.difference for one in some) / rows
        own = sum(one.squares for one in some) / rows - mean * mean
        rows_of: Counter[int] = Counter()
        for one in some:
            rows_of.update(one.rows_of)
        means = sum(n * n / self._known[number].rows for number, n in rows_of.items())
        return max(self._variance(), own) * (rows + means)

    def _variance(self) -> float:
        """Of a row's logarithm within its class, over all classes."""
        squares = freedom = 0.0
        for known in self._known.values():
            squares += known.squares - known.total * known.mean if known.rows else 0.0
            freedom += max(0, known.rows - 1)
        return max(LEAST_SPREAD**2, squares / freedom if freedom else 1.0)

    def _learn(self, classes: Counts, logs: Values) -> None:
        for one in np.unique(classes).tolist():
            known = self._known.setdefault(one, _Class())
            if known.rows >= ENOUGH:
                continue
            here = logs[classes == one]
            known.rows += len(here)
            known.total += float(here.sum())
            known.squares += float(here @ here)
