"""What is asked of a prompt before an engine has it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import errors
from rowmill.engines.prompt import check_prompt, room_for, row_seed
from rowmill.rows import Sampling


@given(st.integers(0, 2**64 - 1), st.none() | st.integers(-(2**63), 2**63 - 1))
def test_seed_of_a_row_is_a_function_of_its_place(key: int, seed: int | None) -> None:
    assert row_seed(key, seed) == row_seed(key, seed)
    assert 0 <= row_seed(key, seed) < 2**63
    assert row_seed(key, seed) != row_seed(key ^ 1, seed)


@pytest.mark.parametrize(
    ("max_tokens", "choices", "room"),
    [(5, (), 5), (0, (), 90), (500, (), 90), (1, ("four", "caf\u00e9s"), 7)],
)
def test_room_of_an_answer(max_tokens: int, choices: tuple[str, ...], room: int) -> None:
    sampling = Sampling(choices=choices)

    assert room == room_for(sampling, max_tokens=max_tokens, prompt_tokens=10, limit=100)


@pytest.mark.parametrize(
    ("ids", "kind"), [([], "invalid"), ([1] * 8, "too_long"), ([1, 50], "invalid")]
)
def test_prompt_that_no_model_can_compute_is_a_row_error(ids: list[int], kind: str) -> None:
    with pytest.raises(errors.RowError) as raised:
        check_prompt(np.array(ids, np.uint32), asked=1, limit=8, vocabulary=50)

    assert kind == raised.value.kind
