"""Keys, positions, tasks and lines of one cut, turned into one another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import RunMismatch
from rowmill.record import (
    MAX_TASK_ROWS,
    MIN_TASK_ROWS,
    Addition,
    Cut,
    Places,
    check_same,
    cut,
)
from rowmill.rows import Shard, pack_key


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    shards = [Shard(i, "p", f"f{i}", 0, 0, 1, size) for i, size in enumerate(sizes)]
    limit = draw(st.integers(0, sum(sizes)))
    return cut(shards, num_lines=limit, task_rows=draw(st.integers(1, 8)))


def shards_of(sizes: list[int], first_index: int = 0) -> list[Shard]:
    return [
        Shard(first_index + i, "p", f"f{first_index + i}", 0, 0, 1, size)
        for i, size in enumerate(sizes)
    ]


SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(SIZES, st.lists(SIZES, max_size=3), st.integers(1, 8))
def test_files_that_join_get_tasks_of_their_own(
    sizes: list[int], joining: list[list[int]], task_rows: int
) -> None:
    run = cut(shards_of(sizes), num_lines=sum(sizes), task_rows=task_rows)
    for more in joining:
        old = Places(run)
        before = [list(old.task_slices(task)) for task in range(run.num_tasks)]
        run = run.with_addition(Addition([], shards_of(more, len(run.shards))))
        new = Places(run)

        assert before == [list(new.task_slices(task)) for task in range(len(before))]
    assert run.num_lines == sum(sizes) + sum(map(sum, joining))
    places = Places(run)
    keys = [
        pack_key(shard.index, ordinal)
        for task in range(run.num_tasks)
        for shard, first, stop in places.task_slices(task)
        for ordinal in range(first, stop)
    ]

    assert [pack_key(s.index, n) for s in run.shards for n in range(s.num_lines)] == keys
    assert places.tasks_of(np.array(keys, np.uint64)).tolist() == list(
        map(places.task_of, keys)
    )


@given(cuts())
def test_tasks_cover_every_line_of_the_run_once(run: Cut) -> None:
    places = Places(run)
    keys = [
        pack_key(shard.index, ordinal)
        for task in range(run.num_tasks)
        for shard, first, stop in places.task_slices(task)
        for ordinal in range(first, stop)
    ]

    every = [pack_key(s.index, n) for s in run.shards for n in range(s.num_lines)]
    assert every[: run.num_lines] == keys
    for key in keys:
        assert key in [
            pack_key(shard.index, n)
            for shard, first, stop in places.task_slices(places.task_of(key))
            for n in range(first, stop)
        ]
    many = places.tasks_of(np.array(keys, np.uint64)).tolist()
    assert [places.task_of(key) for key in keys] == many


def test_tasks_are_a_hundredth_within_bounds() -> None:
    assert [MIN_TASK_ROWS, 3000, MAX_TASK_ROWS] == [
        cut([], num_lines=n, task_rows=None).task_rows for n in (5, 300_000, 10**9)
    ]


def test_another_identity_is_refused_with_keys_and_both_values() -> None:
    old = {"engine.model": "a", "sampling.stop": ["x"]}
    check_same(old, {"engine.model": "a", "sampling.stop": ("x",)}, "out")

    with pytest.raises(RunMismatch, match=r'`engine.model`: "a" -> "b"; `prompt`: null -> "p"'):
        check_same(old, {**old, "engine.model": "b", "prompt": "p"}, "out")
