"""Lots: the order of all rows, cut where a sample says, without ever sorting all of them at once."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import PlanConfig
from rowmill.plan import arrange_lot
from rowmill.plan.lots import Lots, Sample, Stretch
from rowmill.rows import Limits, Request, Sampling

TEXTS = st.lists(
    st.builds(
        lambda root, g, tail: root + f"group {g} " * 9 + tail,
        st.sampled_from(["", "all begin so: ", "all begin"]),
        st.integers(0, 5),
        st.text("ab\u00e9\u4f60", max_size=4),
    ),
    min_size=1,
    max_size=80,
)
SMALL_POOL = Limits(shares_prefixes=True, kv_tokens=50, seats=1)


def requests(texts: list[str]) -> list[Request]:
    return [Request(key, Sampling(max_tokens=16), text=text) for key, text in enumerate(texts)]


def parted(
    rows: list[Request], number: int, window: int, most: int
) -> tuple[Lots, list[list[Request]]]:
    sample = Sample(most)
    for start in range(0, len(rows), window):
        sample.add(rows[start : start + window])
    lots = sample.lots(number)
    found: list[list[Request]] = [[] for _ in range(number)]
    for start in range(0, len(rows), window):
        part = rows[start : start + window]
        for row, mark in zip(part, lots.marks(part), strict=True):
            found[lots.lot_of(mark)].append(row)
    return lots, found


@given(TEXTS, st.integers(1, 9), st.integers(1, 90), st.integers(1, 100))
def test_every_row_is_in_one_lot_and_lots_stand_in_the_order_of_all(
    texts: list[str], number: int, window: int, most: int
) -> None:
    rows = requests(texts)
    lots, found = parted(rows, number, window, most)

    assert sorted(row.key for lot in found for row in lot) == list(range(len(rows)))
    in_turn = [mark for lot in found for mark in sorted(lots.marks(lot))]
    assert sorted(lots.marks(rows)) == in_turn


@given(TEXTS, st.integers(1, 9), st.integers(1, 90))
def test_the_same_rows_give_the_same_lots(texts: list[str], number: int, window: int) -> None:
    rows = requests(texts)

    assert parted(rows, number, window, 16) == parted(rows, number, window, 16)


@given(st.lists(st.integers(0, 7), min_size=40, max_size=200), st.integers(2, 6))
def test_lots_arranged_in_turn_are_the_whole_arranged_in_memory(
    groups: list[int], number: int
) -> None:
    rows = requests([f"{g} begins " * 30 + f"{i:03d}" for i, g in enumerate(groups)])
    config = PlanConfig(order="prefix")
    _, lots = parted(rows, number, 32, 1000)

    def arranged(part: list[Request]) -> list[int]:
        order = arrange_lot(part, config, SMALL_POOL).order
        assert order is not None
        return [part[i].key for i in order]

    assert arranged(rows) == [key for lot in lots for key in arranged(lot)]


def test_lots_are_of_about_equal_size_also_where_texts_are_all_one() -> None:
    draw = random.Random(3)
    texts = [f"{draw.randrange(1000):04d} text" for _ in range(6000)]

    for kind in (texts, ["one text"] * 6000):
        sizes = [len(lot) for lot in parted(requests(kind), 12, 500, 2000)[1]]
        assert max(sizes) < 1.5 * 6000 / 12


def test_no_lot_is_far_larger_than_others_where_some_texts_are_long() -> None:
    texts = [
        f"{i * 7919 % 6000:04d} " + "long " * (400 if i % 10 == 0 else 1) for i in range(6000)
    ]
    together = sorted(texts, key=lambda text: (len(text), text))
    # Long ones begin alike, so they stand side by side in the order.
    found = parted(requests([f"{len(text):05d}{text}" for text in together]), 12, 500, 3000)[1]

    sizes = [sum(len(row.text or "") for row in lot) for lot in found]
    assert max(sizes) < 2.5 * sum(sizes) / 12
    assert max(map(len, found)) < 2.5 * 6000 / 12


def test_what_all_rows_begin_with_is_not_what_they_are_parted_by() -> None:
    root = "x" * 5000
    rows = requests([f"{root}{i % 40:02d}{i}" for i in range(4000)])
    lots, found = parted(rows, 4, 500, 4000)

    heads = [{row.text[5000:5002] for row in lot if row.text} for lot in found]
    assert root == lots.root
    assert all(len(a & b) <= 1 for a in heads for b in heads if a is not b)


def test_edges_hold_no_more_of_a_text_than_parts_it_from_others() -> None:
    rows = requests([f"{i:04d}{'secret' * 50}" for i in range(1000)])
    lots, _ = parted(rows, 5, 500, 1000)

    assert max(len(text) for text, _ in lots.edges) <= 4


def test_a_stretch_has_whole_groups() -> None:
    draw = random.Random(5)
    texts = [f"{g:04d} begins {i}" for g in range(1000) for i in range(10)]
    draw.shuffle(texts)
    rows = requests(texts)
    stretch = Stretch(len(rows), 1000)
    for start in range(0, len(rows), 512):
        stretch.add(rows[start : start + 512])

    taken = {row.text for row in stretch.requests if row.text}
    groups = {text[:4] for text in taken}
    whole = [group for group in groups if sum(text[:4] == group for text in taken) == 10]
    assert 300 < len(taken) < 2000
    assert len(whole) >= len(groups) - 2
