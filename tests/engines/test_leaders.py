"""Rows wait for the one that brings their beginning, and for nothing else."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.leaders import Leaders


def ids(*parts: tuple[int, int]) -> np.ndarray:
    """(token, times), joined."""
    return np.concatenate([np.full(times, token, np.uint32) for token, times in parts])


def test_the_first_row_with_a_beginning_goes_and_the_others_wait_for_its_first_token() -> None:
    leaders: Leaders[str] = Leaders()
    rows = [(i, ids((1, 100), (10 + i, 5)), f"a{i}") for i in range(3)]
    rows += [(10 + i, ids((2, 100), (10 + i, 5)), f"b{i}") for i in range(2)]

    assert leaders.add(rows) == [("a0", True), ("b0", True)]
    assert leaders.computed(0) == [("a1", False), ("a2", False)]
    assert leaders.computed(10) == [("b1", False)]
    assert leaders.num_waiting == 0


def test_beginnings_within_beginnings_have_leaders_of_their_own() -> None:
    leaders: Leaders[str] = Leaders()
    rows = [
        (0, ids((1, 200), (2, 300), (10, 5)), "first"),
        (1, ids((1, 200), (2, 300), (11, 5)), "same document"),
        (2, ids((1, 200), (3, 300), (12, 5)), "other document"),
        (3, ids((1, 200), (3, 300), (13, 5)), "same other document"),
    ]

    assert leaders.add(rows) == [("first", True)]
    assert leaders.computed(0) == [("same document", False), ("other document", True)]
    assert leaders.computed(2) == [("same other document", False)]


def test_rows_that_share_little_go_at_once() -> None:
    leaders: Leaders[int] = Leaders()

    assert leaders.add((i, ids((1, 20), (10 + i, 50)), i) for i in range(4)) == [
        (i, False) for i in range(4)
    ]


def test_a_row_that_comes_after_its_leader_was_sent_alone_does_not_wait() -> None:
    leaders: Leaders[str] = Leaders()

    assert leaders.add([(0, ids((1, 100)), "alone")]) == [("alone", False)]
    assert leaders.add([(1, ids((1, 100), (2, 5)), "later")]) == [("later", False)]


prompts = st.lists(st.integers(1, 3), min_size=1, max_size=6).map(
    lambda parts: ids(*((part, 40) for part in parts))
)


@given(st.lists(st.lists(prompts, max_size=6), max_size=6), st.randoms(use_true_random=False))
def test_every_row_goes_once_and_after_its_leader(batches, random) -> None:  # type: ignore[no-untyped-def]
    leaders: Leaders[int] = Leaders()
    gone: list[int] = []
    running: list[int] = []
    key = 0

    def go(found: list[tuple[int, bool]]) -> None:
        gone.extend(row for row, _ in found)
        running.extend(row for row, _ in found)

    for batch in batches:
        go(leaders.add((key + i, one, key + i) for i, one in enumerate(batch)))
        key += len(batch)
        while running and random.random() < 0.5:
            go(leaders.computed(running.pop(random.randrange(len(running)))))
    while running:
        go(leaders.computed(running.pop(random.randrange(len(running)))))

    assert sorted(gone) == list(range(key))
    assert leaders.num_waiting == 0
