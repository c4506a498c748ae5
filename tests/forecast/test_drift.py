"""Answers that change their length are noticed; an order of rows is no change."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from rowmill.forecast.blocks import Counts
from rowmill.forecast.drift import Alarm, Drift
from rowmill.forecast.learned import Asked
from rowmill.outcomes import FAILED, Outcomes

ROWS, SEATS, PIECE = 4000, 32, 8
ORDERS = ("file", "longest first", "by windows", "by prompt", "by limit and prompt")


def rows_of(seed: int, *, sigma: float, rows: int = ROWS) -> tuple[Counts, Counts, Counts]:
    """Prompts, limits and answers that have to do with both."""
    draw = np.random.default_rng(seed)
    prompts = np.maximum(4, draw.lognormal(5, 1, rows)).astype(np.int64)
    limits = draw.choice([64, 256, 1024], rows).astype(np.int64)
    free = np.maximum(1, prompts**0.5 * draw.lognormal(2, sigma, rows))
    return prompts, limits, np.minimum(limits, free).astype(np.int64)


def ordered(name: str, prompts: Counts, limits: Counts) -> Counts:
    if name == "longest first":
        return np.argsort(-limits, kind="stable")
    if name == "by windows":
        starts = range(0, len(limits), 400)
        return np.concatenate(
            [s + np.argsort(-limits[s : s + 400], kind="stable") for s in starts]
        )
    if name == "by prompt":
        return np.argsort(prompts, kind="stable")
    if name == "by limit and prompt":
        return np.lexsort((prompts, limits))
    return np.arange(len(limits))


def alarms_of(
    prompts: Counts, limits: Counts, answers: Counts, order: Counts
) -> list[tuple[int, Alarm]]:
    """Rows through seats, each as long as its answer; (rows answered, alarm) of every alarm."""
    rows = len(order)
    watch = Drift(rows)
    seated: list[tuple[int, int]] = []
    sent = answered = now = 0
    found = []
    while sent < rows or seated:
        some = order[sent : sent + min(PIECE, SEATS - len(seated))]
        if len(some):
            asked = Asked(prompts[some], limits[some], np.zeros(len(some), bool))
            watch.sent(some.tolist(), asked)
            for row in some.tolist():
                heapq.heappush(seated, (now + int(answers[row]), row))
            sent += len(some)
            continue
        now, row = heapq.heappop(seated)
        answered += 1
        tokens = np.array([[prompts[row]], [0], [answers[row]]], np.uint32)
        outcomes = Outcomes(np.array([row], np.uint64), np.zeros(1, np.uint8), tokens, b"")
        alarm = watch.answered(outcomes)
        if alarm is not None:
            found.append((answered, alarm))
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sigma", [0.0, 1.2])
def test_no_order_of_rows_raises_an_alarm(order: str, sigma: float) -> None:
    prompts, limits, answers = rows_of(1, sigma=sigma, rows=1500)

    assert alarms_of(prompts, limits, answers, ordered(order, prompts, limits)) == []


@pytest.mark.parametrize("order", ["file", "longest first", "by windows"])
def test_answers_three_times_as_long_are_noticed_within_five_percent_of_the_job(
    order: str,
) -> None:
    prompts, limits, answers = rows_of(1, sigma=0.8)
    rows = ordered(order, prompts, limits)
    answers[rows[ROWS // 2 :]] *= 3

    (first, *_) = alarms_of(prompts, limits, answers, rows)

    answered, alarm = first
    assert ROWS // 2 < answered <= ROWS // 2 + ROWS // 20
    assert 2.0 < alarm.factor < 4.5
    assert abs(alarm.since_row - ROWS // 2) <= ROWS // 20


def test_answers_a_third_as_long_are_noticed_too() -> None:
    prompts, limits, answers = rows_of(3, sigma=0.5)
    answers[ROWS // 2 :] = np.maximum(1, answers[ROWS // 2 :] // 3)

    (first, *_) = alarms_of(prompts, limits, answers, np.arange(ROWS))

    assert 0.2 < first[1].factor < 0.5


def test_rows_that_fail_and_rows_of_fixed_length_say_nothing() -> None:
    watch = Drift(100)
    keys = list(range(64))
    lengths, most = np.full(64, 10), np.full(64, 100)
    watch.sent(keys, Asked(lengths, most, np.arange(64) % 2 == 0))
    tokens = np.zeros((3, 64), np.uint32)
    marks = np.full(64, FAILED, np.uint8)

    assert watch.answered(Outcomes(np.array(keys, np.uint64), marks, tokens, b"")) is None
    assert watch.alarm is None
