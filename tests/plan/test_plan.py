"""Prompts -> Plan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import PlanConfig
from rowmill.plan import plan
from rowmill.rows import Prompts
from tests.strategies import windows


def asked_of(prompts: Prompts, i: int) -> tuple[object, ...]:
    """All that makes a row's answer."""
    start = int(prompts.stops[i - 1]) if i else 0
    ids = tuple(prompts.ids[start : int(prompts.stops[i])].tolist())
    return ids, prompts.samplings[prompts.sampling_of[i]], prompts.max_tokens[i]


@given(windows(), st.integers(1, 5), st.sampled_from(["copy", "ask"]))
def test_every_row_is_asked_once_or_copies_an_equal_one(
    prompts: Prompts, max_rows: int, duplicates: str
) -> None:
    planned = plan(prompts, PlanConfig.model_validate({"duplicates": duplicates}))

    asked = [key for batch in planned.batches(max_rows) for key in batch.keys]
    copied = [key for keys in planned.copies.values() for key in keys]
    assert sorted(prompts.keys) == sorted(asked + copied)
    assert planned.num_asked == len(asked)
    row_of = {key: i for i, key in enumerate(prompts.keys)}
    for leader, keys in planned.copies.items():
        assert leader in asked
        for key in keys:
            assert row_of[leader] < row_of[key]
            assert asked_of(prompts, row_of[leader]) == asked_of(prompts, row_of[key])


@given(windows(), st.integers(1, 5))
def test_batches_keep_file_order_and_token_ids(prompts: Prompts, max_rows: int) -> None:
    planned = plan(prompts, PlanConfig())

    row_of = {key: i for i, key in enumerate(prompts.keys)}
    order = []
    for batch in planned.batches(max_rows):
        assert 1 <= len(batch) <= max_rows
        for i, key in enumerate(batch.keys):
            assert asked_of(prompts, row_of[key]) == asked_of(batch, i)
            order.append(row_of[key])
    assert sorted(order) == order


@given(windows())
def test_drawn_answers_are_never_copied(prompts: Prompts) -> None:
    planned = plan(prompts, PlanConfig())

    row_of = {key: i for i, key in enumerate(prompts.keys)}
    for key in [key for keys in planned.copies.values() for key in keys]:
        assert prompts.samplings[prompts.sampling_of[row_of[key]]].temperature == 0


@given(windows())
def test_greedy_duplicates_are_all_found(prompts: Prompts) -> None:
    planned = plan(prompts, PlanConfig())

    copied = {key for keys in planned.copies.values() for key in keys}
    seen = set()
    for i, key in enumerate(prompts.keys):
        # Equal settings at two places of the table are two settings: the table is made without repeats.
        asked = (*asked_of(prompts, i), prompts.sampling_of[i])
        greedy = prompts.samplings[prompts.sampling_of[i]].is_greedy
        assert (greedy and asked in seen) == (key in copied)
        seen.add(asked)


@given(windows())
def test_the_same_window_gives_the_same_plan(prompts: Prompts) -> None:
    first, second = plan(prompts, PlanConfig()), plan(prompts, PlanConfig())

    assert (first.groups, first.copies, first.levers) == (
        second.groups,
        second.copies,
        second.levers,
    )
