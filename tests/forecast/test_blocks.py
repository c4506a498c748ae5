"""What rows share, in blocks: against a plain count of equal beginnings."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.forecast import blocks
from rowmill.forecast.blocks import BLOCK, Beginnings, Distinct, block_hashes, num_blocks

ROWS = st.lists(st.lists(st.sampled_from([0, 1]), max_size=6), min_size=1, max_size=12)
"""Each number stands for a block of its own."""


def packed(rows: list[list[int]], extra: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Token ids: each number as a block of tokens, and `extra` tokens behind, as the last is never found."""
    parts = [np.repeat(np.array(row, np.uint32), BLOCK) for row in rows]
    whole = [np.concatenate([part, np.full(extra, 7, np.uint32)]) for part in parts]
    return np.concatenate(whole), np.cumsum([len(part) for part in whole])


def beginnings(rows: list[list[int]]) -> list[tuple[int, ...]]:
    return [tuple(row[: i + 1]) for row in rows for i in range(len(row))]


@given(ROWS)
def test_blocks_are_equal_where_all_before_them_is(rows: list[list[int]]) -> None:
    hashes, ends = block_hashes(*packed(rows))

    assert ends.tolist() == np.cumsum([len(row) for row in rows]).tolist()
    by_hash = dict(zip(hashes.tolist(), beginnings(rows), strict=True))
    assert [by_hash[value] for value in hashes.tolist()] == beginnings(rows)
    assert len(by_hash) == len(set(beginnings(rows)))


@given(ROWS)
def test_runs_of_two_rows_are_what_both_begin_with(rows: list[list[int]]) -> None:
    runs = Beginnings(*block_hashes(*packed(rows))).runs

    assert len(runs) == len(rows)
    for (left, one), (right, other) in pairwise(zip(rows, runs, strict=True)):
        shared = 0
        while shared < min(len(left), len(right)) and left[shared] == right[shared]:
            shared += 1
        common = 0
        for mine, theirs in zip(one, other, strict=False):
            if mine != theirs:
                break
            common += mine[1]
        assert common == shared
    counts = [beginnings(rows).count(beginning) for beginning in beginnings(rows)]
    assert sum(size for row in runs for _, size in row) == sum(count > 1 for count in counts)


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    lengths = np.array([0, 1, 16, 17, 32, 33])

    assert num_blocks(lengths).tolist() == [0, 0, 0, 1, 1, 2]


def test_no_rows_have_no_blocks() -> None:
    hashes, ends = block_hashes(np.empty(0, np.uint32), np.empty(0, np.int64))

    assert (len(hashes), len(ends)) == (0, 0)


@pytest.mark.parametrize("number", [50_000, 300_000])
def test_many_are_counted_by_an_even_choice(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(blocks, "MOST_KEPT", 4000)
    for seed in range(8):
        distinct = Distinct()
        values = np.random.default_rng(seed).integers(0, 2**63, number, dtype=np.uint64)
        for part in np.array_split(np.concatenate([values, values[:1000]]), 40):
            distinct.add(part)

        assert distinct.count() == pytest.approx(number, rel=0.08)
        assert 0.85 * number < distinct.at_least() <= number


def test_a_choice_of_many_holds_as_long_as_more_of_them_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hashes in order, as chains of equal blocks have them: what is chosen does not hang on it."""
    monkeypatch.setattr(blocks, "MOST_KEPT", 1 << 16)
    distinct = Distinct()
    for first in range(0, 1_000_000, 50_000):
        distinct.add(np.arange(first, first + 60_000, dtype=np.uint64))

    assert distinct.count() == pytest.approx(1_010_000, rel=0.02)
    assert distinct.at_least() <= 1_010_000


def test_few_are_counted_exactly() -> None:
    distinct = Distinct()
    for _ in range(3):
        distinct.add(np.arange(1000, dtype=np.uint64))

    assert distinct.count() == distinct.at_least() == 1000
    assert Distinct().count() == 0
