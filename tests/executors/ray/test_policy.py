"""How many workers, and when to give up: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.executors.ray.policy import Losses, ahead, missing, room, spots, wanted

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


NODES = {
    "gpus": {"CPU": 16.0, "GPU": 2.0},
    "cpus": {"CPU": 3.0},
    "more": {"CPU": 2.0},
    "none": {"memory": 1.0},
}
ON_GPU = {"CPU": 4.0, "GPU": 1.0}


def test_rows_are_tokenised_ahead_where_no_gpu_is_two_cores_a_worker() -> None:
    assert spots(NODES, ON_GPU, most=None, asked=None) == ["cpus", "more", "cpus", "more"]
    assert spots(NODES, ON_GPU, most=1, asked=None) == ["cpus", "more"]
    assert spots({"gpus": NODES["gpus"]}, ON_GPU, most=None, asked=None) == []
    assert spots(NODES, {"CPU": 1.0, "GPU": 0.0}, most=None, asked=None) == []


def test_cores_that_are_asked_for_are_those_no_worker_wants() -> None:
    on_gpus = spots(NODES, ON_GPU, most=None, asked=99)

    assert on_gpus == ["cpus", "more", "cpus", "more", "cpus", *["gpus"] * 8]
    assert spots(NODES, ON_GPU, most=None, asked=6) == on_gpus[:6]
    assert spots(NODES, ON_GPU, most=None, asked=0) == []
    assert spots(NODES, {"CPU": 1.0, "GPU": 0.0}, most=None, asked=9) == []
    assert spots(NODES, {"CPU": 2.0, "GPU": 0.0}, most=1, asked=3) == ["gpus", "cpus", "gpus"]


def test_only_spots_that_are_free_are_filled() -> None:
    assert missing(["a", "b", "a", "c"], ["a", "c", "d"]) == ["b", "a"]


@given(
    open_tasks=st.sets(st.integers(0, 60)),
    claimed=st.sets(st.integers(0, 60)),
    prepared=st.sets(st.integers(0, 60)),
    workers=st.integers(1, 5),
    preparers=st.integers(1, 5),
)
def test_what_lies_ahead_is_bounded_and_never_what_somebody_has(
    open_tasks: set[int],
    claimed: set[int],
    prepared: set[int],
    workers: int,
    preparers: int,
) -> None:
    given = sorted(open_tasks)

    tasks = ahead(given, claimed, prepared, workers=workers, preparers=preparers)

    assert set(tasks) <= open_tasks - claimed - prepared
    assert tasks == sorted(tasks)
    waiting = (open_tasks - claimed) & prepared
    assert not tasks or len(tasks) + len(waiting) <= max(4 * workers, 2 * preparers)
    assert set(sorted(open_tasks - claimed)[:workers]).isdisjoint(tasks)
