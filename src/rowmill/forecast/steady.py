"""Moments at which work was done -> the rate of a steady state, with its 95% interval.

Promises: what lies before the state is steady is left out by the caller; a rate without an interval is none.
Knows nothing of: engines, rows.
Source: non-overlapping batch means (Law and Kelton; Alexopoulos and Seila): the time is cut into batches of about equal length,
taken for independent once neighbours are not correlated, else half as many are looked at; the rate is the ratio of sums,
its error that of a ratio (Cochran), Student's t over the batches. The quantile of t is Cornish and Fisher's expansion,
0.3% off at 7 degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
BATCHES, LEAST_BATCHES = 32, 8
ROWS_A_BATCH = 2.0
NORMAL = 1.959964


class Rate(msgspec.Struct, frozen=True):
    """Work a second."""

    mean: float
    low: float
    high: float
    seconds: float
    """That it was measured over."""
    batches: int

    @property
    def share(self) -> float:
        """Half the interval, as a share of the mean."""
        return (self.high - self.low) / 2 / self.mean if self.mean else float("inf")

    def overlaps(self, other: Rate) -> bool:
        """Whether the two may be the same."""
        return self.low <= other.high and other.low <= self.high


def steady(ends: Sequence[tuple[float, float]], begin: float, stop: float) -> Rate | None:
    """The rate from `begin` to `stop`; None where too little was done for an interval.

    Args:
        ends: (moment, work done then), in order.
    """
    moments = np.array([moment for moment, _ in ends])
    work = np.array([amount for _, amount in ends])
    inside = (moments > begin) & (moments <= stop)
    moments, work = moments[inside], work[inside]
    if len(moments) < 2 * LEAST_BATCHES or moments[-1] <= moments[0]:
        return None
    number = BATCHES
    while True:
        cuts = _cuts(moments, number)
        if len(cuts) <= LEAST_BATCHES:
            return None if number == LEAST_BATCHES else _rate(moments, work, cuts)
        found = _rate(moments, work, cuts)
        if number == LEAST_BATCHES or abs(_correlation(*_batches(moments, work, cuts))) <= 2 / (
            number**0.5
        ):
            return found
        number //= 2


def _cuts(moments: Values, number: int) -> list[int]:
    """Where batches end: near equal times, behind the last answer before a long wait.

    Rows that were begun together end together: cut anywhere, a batch would have one wave of them more than the next.
    """
    waits = np.append(np.diff(moments), np.inf)
    length = (moments[-1] - moments[0]) / number
    cuts: list[int] = []
    for i in range(number + 1):
        at = moments[0] + i * length
        left, right = np.searchsorted(moments, (at - length / 4, at + length / 4))
        left, right = int(left), max(int(left) + 1, int(right))
        some = waits[left : min(right, len(moments))]
        if len(some):
            cut = left + int(np.argmax(some))
            if not cuts or cut > cuts[-1]:
                cuts.append(cut)
    return cuts


def _batches(moments: Values, work: Values, cuts: list[int]) -> tuple[Values, Values]:
    """Seconds and work of each batch."""
    done = np.cumsum(work)
    return np.diff(moments[cuts]), np.diff(done[cuts])


def _rate(moments: Values, work: Values, cuts: list[int]) -> Rate | None:
    """The rate of batches, None where they are too few."""
    return _ratio(*_batches(moments, work, cuts))


def _ratio(seconds: Values, done: Values) -> Rate | None:
    """The ratio of sums, with the interval of a ratio."""
    number = len(seconds)
    if number < LEAST_BATCHES // 2 or not done.sum():
        return None
    mean = float(done.sum() / seconds.sum())
    spread = done - mean * seconds
    error = float((spread @ spread / (number * (number - 1))) ** 0.5 / seconds.mean())
    half = student(number - 1) * error
    return Rate(mean, max(0.0, mean - half), mean + half, float(seconds.sum()), number)


def steady_spans(
    begins: Values, ends: Values, work: Values, begin: float, stop: float
) -> Rate | None:
    """The rate from `begin` to `stop` of rows that are worked on from their begin to their end; None where there are too few.

    All rows that were begun before `stop` must be there. What a row is worth counts evenly over its time, so that a few long
    rows, whose ends come by chance before or after the end of a batch, make no noise.

    Shapes: R each.
    """
    inside = (ends > begin) & (begins < stop)
    if stop <= begin or int(inside.sum()) < 2 * LEAST_BATCHES:
        return None
    begins, ends, work = begins[inside], ends[inside], work[inside]
    number = BATCHES
    # Neighbours share the rows that cross from one to the other: few, where a batch is far longer than a row.
    while number > LEAST_BATCHES and (stop - begin) / number < ROWS_A_BATCH * _usual(
        begins, ends, work
    ):
        number //= 2
    while True:
        edges = np.linspace(begin, stop, number + 1)
        done = np.diff(_done_at(edges, begins, ends, work))
        seconds = np.diff(edges)
        if number == LEAST_BATCHES or abs(_correlation(seconds, done)) <= 2 / number**0.5:
            return _ratio(seconds, done)
        number //= 2


def _usual(begins: Values, ends: Values, work: Values) -> float:
    """How long the row takes that a piece of work is part of."""
    return float(((ends - begins) @ work) / max(work.sum(), 1e-9))


def _done_at(moments: Values, begins: Values, ends: Values, work: Values) -> Values:
    """Work done until each moment."""
    spans = np.maximum(ends - begins, 1e-9)
    shares = np.clip((moments[:, None] - begins[None, :]) / spans[None, :], 0.0, 1.0)
    found: Values = shares @ work
    return found


def student(degrees: int) -> float:
    """The 97.5% quantile of Student's t."""
    z, n = NORMAL, degrees
    first = (z**3 + z) / (4 * n)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return z + first + second + third


def _correlation(seconds: Values, done: Values) -> float:
    """Of neighbours' rates, weighted as the ratio has them."""
    spread = done - done.sum() / seconds.sum() * seconds
    square = float(spread @ spread)
    return float(spread[1:] @ spread[:-1]) / square if square else 0.0
