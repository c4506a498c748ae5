"""Sizes of step that vLLM records as CUDA graphs, for all seats."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.vllm_graphs import (
    MOST_ROWS,
    STRIDE_ROWS,
    graphs_for_seats,
    sizes_up_to,
)

OWN = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
"""What vLLM 0.25.1 records where it has 256 seats and more."""


def config(
    seats: int,
    *,
    sizes: list[int] = OWN,
    step_tokens: int = 16384,
    runner: str = "generate",
    has_state: bool = False,
) -> Any:
    """The parts of a `VllmConfig` that are looked at."""
    return SimpleNamespace(
        model_config=SimpleNamespace(runner_type=runner, has_inner_state=has_state),
        compilation_config=SimpleNamespace(cudagraph_capture_sizes=sizes),
        scheduler_config=SimpleNamespace(
            max_num_seqs=seats, max_num_batched_tokens=step_tokens
        ),
    )


def test_a_step_of_all_seats_is_recorded() -> None:
    found = graphs_for_seats({"model": "m"}, config(1024))["cudagraph_capture_sizes"]

    assert OWN == found[: len(OWN)]
    assert 1024 == found[-1]
    assert 16 == len(found) - len(OWN)


@pytest.mark.parametrize(
    ("seats", "last"), [(256, None), (512, None), (513, 513), (700, 700), (10_000, MOST_ROWS)]
)
def test_as_many_sizes_as_the_seats_need(seats: int, last: int | None) -> None:
    found = graphs_for_seats({}, config(seats))

    assert last == (found["cudagraph_capture_sizes"][-1] if found else None)


def test_no_size_is_larger_than_a_step() -> None:
    found = graphs_for_seats({}, config(1024, step_tokens=600))

    assert 600 == found["cudagraph_capture_sizes"][-1]


@pytest.mark.parametrize(
    "said",
    [
        {"enforce_eager": True},
        {"max_cudagraph_capture_size": 512},
        {"cudagraph_capture_sizes": [1, 2]},
        {"compilation_config": {"cudagraph_mode": "NONE"}},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
    ],
)
def test_who_says_something_of_graphs_is_heard(said: dict[str, Any]) -> None:
    assert {} == graphs_for_seats(said, config(1024))


def test_where_none_are_recorded_none_are_added() -> None:
    assert {} == graphs_for_seats({}, config(1024, sizes=[]))


def test_models_that_do_not_generate_or_keep_a_state_stay_as_they_are() -> None:
    assert {} == graphs_for_seats({}, config(1024, runner="pooling"))
    assert {} == graphs_for_seats({}, config(1024, has_state=True))


@given(
    sizes=st.sets(st.integers(1, 600), min_size=1),
    most=st.integers(1, 3000),
)
def test_sizes_rise_and_no_step_is_padded_by_more_than_a_stride(
    sizes: set[int], most: int
) -> None:
    added = sizes_up_to(most, sorted(sizes))

    every = [max(sizes), *added]
    steps = [b - a for a, b in itertools.pairwise(every)]
    assert all(0 < step <= STRIDE_ROWS for step in steps)
    assert not added or most == added[-1]
    assert every[-1] >= most
