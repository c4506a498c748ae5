"""What is left of a run is told by tokens."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from rowmill.forecast.learned import Asked, Learned, classes_of
from rowmill.forecast.left import Left
from rowmill.forecast.probe import Cost, Probe
from rowmill.outcomes import Outcomes
from rowmill.size.work import DECODE_WEIGHT


def asked(lengths: list[int], most: list[int], *, exact: bool) -> Asked:
    return Asked(np.array(lengths), np.array(most), np.full(len(lengths), exact))


def outcomes(keys: list[int], prompts: list[int], answers: list[int]) -> Outcomes:
    tokens = np.array([prompts, [0] * len(keys), answers], np.uint32)
    return Outcomes(np.array(keys, np.uint64), np.zeros(len(keys), np.uint8), tokens, b"")


def test_long_rows_that_are_done_leave_little() -> None:
    left = Left()
    left.enter([0, 1, 2, 3], asked([1000, 1000, 10, 10], [500, 500, 5, 5], exact=True), 4)
    left.answered(outcomes([0, 1], [1000, 1000], [500, 500]))

    found = left.work(4)

    assert found.left == pytest.approx(2 * (10 + DECODE_WEIGHT * 5))
    assert found.done == pytest.approx(2 * (1000 + DECODE_WEIGHT * 500))
    assert found.error == 0.0


def test_rows_that_may_end_by_themselves_are_expected_as_those_alike_were() -> None:
    left = Left()
    left.enter([0, 1, 2], asked([100, 100, 100], [400, 400, 400], exact=False), 3)
    assert left.work(3).output_tokens == pytest.approx(3 * 200)

    left.answered(outcomes([0], [100], [40]))

    assert left.work(3).output_tokens == pytest.approx(2 * 40)


def test_rows_that_are_not_read_yet_are_like_those_that_are() -> None:
    left = Left()
    left.enter([0, 1], asked([100, 300], [10, 30], exact=True), 2)
    left.answered(outcomes([0], [100], [10]))

    found = left.work(10)

    assert found.prompt_tokens == pytest.approx(300 + 4 * 400)
    assert found.output_tokens == pytest.approx(30 + 4 * 40)


def test_an_alarm_makes_the_rest_longer() -> None:
    left = Left()
    left.enter([0, 1], asked([100, 100], [400, 400], exact=False), 2)
    left.answered(outcomes([0], [100], [40]))
    left.changed(3.0)

    assert left.work(2).output_tokens == pytest.approx(120)


def test_nothing_is_left_at_the_end() -> None:
    left = Left()
    left.enter([0, 1], asked([7, 9], [400, 400], exact=False), 3)
    left.answered(outcomes([0, 1], [7, 9], [40, 50]))

    assert left.work(3).left == 0.0


def test_means_of_a_few_are_told_with_their_error() -> None:
    learned = Learned()
    classes = classes_of(np.full(4, 10), np.full(4, 100))
    learned.add(classes, np.array([10, 20, 30, 40]))

    assert learned.expected(classes, np.full(4, 50)).tolist() == [25.0] * 4
    # 4 rows: 4^2 x 125 / 4 for the mean, 4 x 125 for the rows.
    assert learned.error(classes) == pytest.approx((500 + 500) ** 0.5)


def test_a_probe_foretells_time_and_money_with_an_interval() -> None:
    probe = Probe(
        made="",
        settings={},
        rate=1000.0,
        rate_low=960.0,
        rate_high=1040.0,
        work=3_600_000.0,
        work_error=0.0,
        rows=1000,
        prompt_tokens=2e6,
        answer_tokens=5e5,
        edges_s=10.0,
        start_s=90.0,
        cost=Cost(gpus=2, gpu_hour=3.0, prompt_million=1.0, output_million=2.0),
    )

    found, half = probe.estimate(), probe.estimate(0.5)

    assert found.seconds == pytest.approx(3610.0)
    assert found.low_s < 0.96 * found.seconds < 1.04 * found.seconds < found.high_s
    assert found.gpu_hours == pytest.approx(2 * 3700 / 3600)
    assert found.cost == pytest.approx(3.0 * 2 * 3700 / 3600 + 2.0 + 1.0)
    assert half.seconds == pytest.approx(1810.0)
    slowly_fed = msgspec.structs.replace(probe, feeding_s=7200.0)
    assert slowly_fed.estimate(0.5).seconds == pytest.approx(3610.0)
