"""Rates of a steady state, with intervals that hold what they say."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest

from rowmill.forecast.steady import Values, steady, steady_spans, student


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(7, 2.365), (15, 2.131), (31, 2.040), (100, 1.984)]
)
def test_the_quantile_is_that_of_the_tables(degrees: int, quantile: float) -> None:
    assert student(degrees) == pytest.approx(quantile, rel=2e-3)


def test_rows_that_end_in_waves_are_a_steady_rate() -> None:
    waves = [(0.05 * k + 0.0002 * j, 4.0) for k in range(1, 80) for j in range(16)]

    rate = steady(waves, 0.2, 4.0)

    assert rate is not None
    assert rate.mean == pytest.approx(64 / 0.05)
    assert rate.share < 0.01


def test_too_few_rows_are_no_rate() -> None:
    few = [(0.1 * k, 1.0) for k in range(10)]

    assert steady(few, 0.0, 1.0) is None
    assert steady_spans(*_columns([(0.0, 1.0)] * 10), 0.0, 1.0) is None
    assert steady([], 0.0, 1.0) is None


def _columns(spans: list[tuple[float, float]]) -> tuple[Values, Values, Values]:
    begins, ends = np.array(spans).T
    return begins, ends, (ends - begins) * 100.0


def seats(draw: np.random.Generator, number: int, rows: int) -> list[tuple[float, float]]:
    """Rows of log-normal length through so many seats, each taken again at once."""
    free = [0.0] * number
    spans = []
    for length in draw.lognormal(0, 1, rows).tolist():
        begin = heapq.heappop(free)
        heapq.heappush(free, begin + length)
        spans.append((begin, begin + length))
    return spans


def test_full_seats_are_a_rate_without_noise() -> None:
    begins, ends, work = _columns(seats(np.random.default_rng(1), 32, 1500))

    rate = steady_spans(begins, ends, work, 5.0, float(np.quantile(ends, 0.8)))

    assert rate is not None
    assert rate.mean == pytest.approx(32 * 100.0)
    assert rate.share < 1e-6


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    draw = np.random.default_rng(7)
    held = []
    for _ in range(60):
        moments = np.cumsum(draw.exponential(0.05, 400))
        amounts = draw.lognormal(3, 1, 400)
        pairs = list(zip(moments.tolist(), amounts.tolist(), strict=True))
        rate = steady(pairs, 1.0, float(moments[-1]))
        assert rate is not None
        held.append(rate.low <= np.exp(3.5) / 0.05 <= rate.high)

    assert np.mean(held) > 0.85


def test_a_slow_change_widens_the_interval() -> None:
    """Neighbouring batches are alike then: they are not taken for independent."""
    moments = list(itertools.accumulate(0.01 * (1 + 0.5 * (k > 1500)) for k in range(3000)))

    rate = steady([(moment, 1.0) for moment in moments], 0.0, moments[-1])

    assert rate is not None
    assert rate.batches == 8
    assert rate.share > 0.05
