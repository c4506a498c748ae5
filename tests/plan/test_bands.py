"""Bands of rows by the length of their answers: engines that begin together end together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.plan.bands import Bands
from rowmill.size.work import DECODE_WEIGHT, STEP_WEIGHT

PROMPT = 250.0


def drawn(rows: int, most: int = 1500) -> list[int]:
    """Lengths as answers have them, the longest first."""
    draw = random.Random(1)
    return sorted(
        (min(most, int(draw.lognormvariate(4.7, 1)) + 4) for _ in range(rows)), reverse=True
    )


def work_of(lengths: list[int]) -> list[float]:
    return [PROMPT + DECODE_WEIGHT * length for length in lengths]


def costs(bands: Bands, lengths: list[int], number: int, *, seats: int) -> list[float]:
    """What an engine takes that makes a step for each token of its longest answer, or of all of them over its seats."""
    found = []
    for band in range(number):
        own = [n for n, k in zip(lengths, bands.band_of, strict=True) if k == band]
        steps = max([sum(own) / seats, *own])
        found.append(STEP_WEIGHT * steps + sum(work_of(own)))
    return found


@pytest.mark.parametrize("number", [2, 3, 5])
def test_engines_end_together_where_no_rows_come_behind(number: int) -> None:
    lengths = drawn(4000)
    bands = Bands(lengths, work_of(lengths), number, seats=1024)

    found = costs(bands, lengths, number, seats=1024)
    assert max(found) < 1.05 * min(found)
    # Rows in even shares of tokens: the engine with the longest makes many times the steps of the others.
    even = Bands(lengths, work_of(lengths), number, seats=1024, behind=1_000_000)
    assert max(costs(even, lengths, number, seats=1024)) > 1.1 * max(found)


def test_work_is_even_where_rows_come_behind() -> None:
    lengths = drawn(8000)
    bands = Bands(lengths, work_of(lengths), 5, seats=1024, behind=1_000_000)

    work = [0.0] * 5
    for weight, band in zip(work_of(lengths), bands.band_of, strict=True):
        work[band] += weight
    assert max(work) < 1.15 * min(work)


def test_bands_begin_together() -> None:
    lengths = drawn(4000)
    bands = Bands(lengths, work_of(lengths), 5, seats=1024)

    assert {bands.band_of[i] for i in bands.order[:20]} == {0, 1, 2, 3, 4}
    assert {bands.band_of[i] for i in bands.order[-200:]} == {0, 1, 2, 3, 4}


def test_rows_of_one_length_are_for_several_engines() -> None:
    lengths = [1000] * 600 + [10] * 600
    bands = Bands(lengths, work_of(lengths), 4, seats=64)

    counts = [bands.band_of.count(band) for band in range(4)]
    assert 150 < min(counts[:3])
    assert sum(counts) == 1200


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=60),
    st.integers(2, 9),
    st.integers(0, 500),
)
def test_every_row_is_in_one_band_and_bands_fall(
    lengths: list[int], number: int, behind: int
) -> None:
    lengths.sort(reverse=True)
    bands = Bands(lengths, work_of(lengths), number, seats=8, behind=behind)

    assert len(bands.band_of) == len(lengths)
    assert sorted(bands.order) == list(range(len(lengths)))
    assert bands.band_of == sorted(bands.band_of)
    assert max(bands.band_of) < number
