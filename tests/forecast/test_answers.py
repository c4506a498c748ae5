"""How long answers are taken to be."""

from __future__ import annotations

import pytest

from rowmill.forecast.answers import answers_of
from rowmill.rows import Sampling
from tests.engines.rows_of import byte_prompts


@pytest.mark.parametrize(
    ("sampling", "max_tokens", "expected"),
    [
        (Sampling(max_tokens=100), 100, (10, 50, 100)),
        (Sampling(max_tokens=100, ignore_eos=True), 100, (100, 100, 100)),
        (Sampling(max_tokens=8), 8, (8, 8, 8)),
        (Sampling(max_tokens=500, choices=("positive", "negative")), 500, (4, 4, 4)),
        (Sampling(), 4000, (32, 256, 4000)),
        (Sampling(), 0, (32, 256, 256)),
        (Sampling(max_tokens=100, n=3), 100, (30, 150, 300)),
    ],
)
def test_answers_are_exact_where_settings_fix_them(
    sampling: Sampling, max_tokens: int, expected: tuple[int, int, int]
) -> None:
    found = answers_of(byte_prompts(["text"], max_tokens=max_tokens, sampling=[sampling]))

    assert (found.low[0], found.expected[0], found.high[0]) == expected
