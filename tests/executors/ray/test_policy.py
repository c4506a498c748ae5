"""How many workers, and when to give up: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.executors.ray.policy import Losses, room, wanted

tasks = st.integers(0, 10_000)
some = st.integers(1, 1_000)


@given(open_tasks=tasks, most=st.none() | some, room=st.integers(0, 1_000))
def test_workers_are_bounded_by_tasks_and_by_what_is_asked(
    open_tasks: int, most: int | None, room: int
) -> None:
    number = wanted(open_tasks=open_tasks, most=most, room=room)

    assert number <= open_tasks
    assert (number > 0) == (open_tasks > 0)
    assert number <= max(1, most or room)


def test_workers_fill_each_node_by_its_scarcest_resource() -> None:
    nodes = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 4.0}, {"CPU": 64.0}]

    assert room(nodes, {"CPU": 1, "GPU": 1}) == 3
    assert room(nodes, {"CPU": 1, "GPU": 2}) == 2
    assert room(nodes, {"CPU": 1, "GPU": 0}) == 73
    assert room([{"CPU": 0.9, "GPU": 1.0}], {"CPU": 0.3, "GPU": 0.1}) == 3


def test_losses_count_only_while_no_row_is_answered() -> None:
    losses = Losses(2)

    assert [losses.lost(answered) for answered in (5, 9, 9, 12)] == [True] * 4
    assert [losses.lost(12), losses.lost(12)] == [True, False]
    assert losses.total == 6


@pytest.mark.parametrize("first", [0, 1])
def test_workers_that_never_answer_are_given_up(first: int) -> None:
    losses = Losses(3)
    going = [losses.lost(first) for _ in range(5)]

    assert going.index(False) == 3
