"""Columns of outcomes: where their lines end, and parts of them."""

from __future__ import annotations

import pytest

from rowmill.outcomes import LONG_BYTES, Outcomes, join, pack
from rowmill.rows import Outcome


def outcomes(sizes: list[int]) -> Outcomes:
    return pack([Outcome(key=i, status="ok", text="x" * n) for i, n in enumerate(sizes)])


@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 5], [4 * LONG_BYTES, 1, 3 * LONG_BYTES]])
def test_each_line_ends_where_its_line_feed_stands(sizes: list[int]) -> None:
    found = outcomes(sizes)

    assert [i + 1 for i, byte in enumerate(found.lines) if byte == 10] == found.stops().tolist()


@pytest.mark.parametrize("long", [1, 4 * LONG_BYTES])
def test_parts_are_the_whole(long: int) -> None:
    whole = outcomes([long, 2, long, 0, 7])

    parts = list(whole.parted([0, 1, 4, 5]))

    assert [len(part) for part in parts] == [1, 3, 1]
    assert [o.key for part in parts for o in part.unpack()] == [0, 1, 2, 3, 4]
    assert join(parts).unpack() == whole.unpack()
