"""What rows share beyond their windows."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rowmill.forecast.spread import Spread
from rowmill.rows import Request, Sampling


def spread(texts: list[str], window: int) -> Spread:
    found = Spread()
    rows = [Request(key, Sampling(), text=text) for key, text in enumerate(texts)]
    for start in range(0, len(rows), window):
        found.add(rows[start : start + window])
    return found


def grouped(groups: int, each: int) -> list[str]:
    drawn = [random.Random(g).randbytes(320).hex() for g in range(groups)]
    return [f"{begin}{i:064d}" for begin in drawn for i in range(each)]


def test_groups_that_stand_together_leave_nothing_to_sort() -> None:
    found = spread(grouped(50, 8), 80)

    assert found.share < 0.01
    assert 0.7 < found.near_share < 0.85
    assert not found.verdict().is_used


def test_the_same_groups_shuffled_do() -> None:
    texts = grouped(50, 8)
    random.Random(1).shuffle(texts)
    apart, together = spread(texts, 20), spread(grouped(50, 8), 80)

    assert apart.verdict().is_used
    assert apart.share > 0.4
    # Nothing is lost of what there is.
    assert abs(apart.share + apart.near_share - together.near_share) < 0.02


@given(st.lists(st.integers(0, 9), min_size=2, max_size=60), st.integers(1, 60))
def test_larger_windows_leave_less(groups: list[int], window: int) -> None:
    texts = [f"{g} " * 100 for g in groups]

    assert spread(texts, 2 * window).share <= spread(texts, window).share
    assert spread(texts, len(texts)).share == 0
