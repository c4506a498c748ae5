"""Counts of lengths: exact, whatever the order, and every value in one bar."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rowmill.report.lengths import LARGEST, Lengths

VALUES = st.lists(st.integers(0, 5000), min_size=1)
FAR = [LARGEST - 1, LARGEST, LARGEST + 1, LARGEST + 10, 3]
"""Beyond what is counted one by one."""


def counted(values: list[int], parts: int = 1) -> Lengths:
    lengths = Lengths()
    for part in np.array_split(np.array(values, np.int64), parts):
        lengths.add(part)
    return lengths


@given(VALUES, st.integers(1, 30))
@example(FAR, 24)
def test_every_value_is_in_one_bar(values: list[int], most: int) -> None:
    bins = counted(values).bins(most)

    assert len(bins) <= most + 2
    for found in bins:
        inside = [
            v for v in values if v >= found.low and (found.stop is None or v < found.stop)
        ]
        assert len(inside) == found.rows
    assert sum(b.rows for b in bins) == len(values)


@given(VALUES, st.sampled_from([0.5, 0.9, 0.95, 1.0]))
@example(FAR, 0.9)
def test_so_many_are_no_longer(values: list[int], share: float) -> None:
    found = counted(values).below(share)

    assert sum(min(v, LARGEST) <= found for v in values) >= share * len(values)
    assert sum(min(v, LARGEST) < found for v in values) < share * len(values)


@given(VALUES, st.integers(1, 5))
def test_the_order_of_counting_does_not_matter(values: list[int], parts: int) -> None:
    one, several = counted(values), counted(values, parts)

    assert one.bins(20) == several.bins(20)
    assert (one.total, one.longest, one.rows) == (sum(values), max(values), len(values))


@given(VALUES, VALUES)
def test_bars_of_another_run_hold_all_of_this_one(mine: list[int], theirs: list[int]) -> None:
    beside = counted(mine).bins_as(counted(theirs).bins(20))

    assert sum(b.rows for b in beside) == len(mine)


def test_a_copy_is_counted_on_apart() -> None:
    first = counted([1, 2, 3])
    second = first.copy()
    second.add(np.array([4000]))

    assert (first.rows, first.longest) == (3, 3)
    assert (second.rows, second.longest) == (4, 4000)
