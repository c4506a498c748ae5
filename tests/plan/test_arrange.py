"""The order of a window: a permutation, used only where there is a gain."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import PlanConfig
from rowmill.plan import Arranged, arrange
from rowmill.rows import Limits, Request, Sampling

POOL = Limits(shares_prefixes=True, kv_tokens=2000, seats=4)
TEXTS = st.lists(
    st.builds(
        lambda g, tail: f"group {g} " * 12 + tail, st.integers(0, 5), st.text(max_size=5)
    ),
    max_size=60,
)


def requests(texts: list[str], lengths: list[int] | None = None) -> list[Request]:
    many = lengths or [16] * len(texts)
    return [
        Request(i, Sampling(max_tokens=n or None), text=text)
        for i, (text, n) in enumerate(zip(texts, many, strict=True))
    ]


def arranged(
    texts: list[str],
    lengths: list[int] | None = None,
    *,
    limits: Limits = POOL,
    order: str = "auto",
) -> Arranged:
    return arrange(
        requests(texts, lengths), PlanConfig.model_validate({"order": order}), limits
    )


def grouped_texts(groups: int, each: int, prefix_chars: int = 4000) -> list[str]:
    beginnings = [
        "".join(random.Random(g).choices("abcdefgh ", k=prefix_chars)) for g in range(groups)
    ]
    texts = [f"{beginning}|{i}" for beginning in beginnings for i in range(each)]
    random.Random(1).shuffle(texts)
    return texts


@given(TEXTS, st.data())
def test_an_order_has_every_row_once(texts: list[str], data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 50), min_size=len(texts), max_size=len(texts)))
    found = arranged(texts, lengths)

    assert found.order is None or sorted(found.order) == list(range(len(texts)))
    assert found == arranged(texts, lengths)
    assert [lever.name for lever in found.levers] == ["prefixes", "longest first"]


def test_rows_that_begin_alike_stand_together_where_the_pool_is_small() -> None:
    texts = grouped_texts(20, 5)
    found = arranged(texts)

    assert found.order is not None
    heads = [texts[i][:100] for i in found.order]
    assert sum(a != b for a, b in pairwise(heads)) == 19
    assert found.levers[0].is_used
    assert 70_000 < found.levers[0].saved_tokens < 90_000


def test_no_gain_is_claimed_where_all_beginnings_fit() -> None:
    roomy = Limits(shares_prefixes=True, kv_tokens=10**6, seats=4)
    found = arranged(grouped_texts(20, 5), limits=roomy)

    assert found.order is None
    assert "fit into the KV cache" in found.levers[0].reason
    assert arranged(grouped_texts(20, 5), limits=roomy, order="prefix").order is not None


def test_one_beginning_of_all_rows_is_no_reason_to_sort() -> None:
    texts = [f"You are a helpful judge of reviews. {'-' * 400} {i * 7919}" for i in range(200)]
    found = arranged(texts)

    assert found.order is None
    assert "stays in the cache in any order" in found.levers[0].reason


def test_rows_that_share_nothing_stay_as_they_are() -> None:
    texts = [f"{i * 7919 % 1000} {'x' * 200}" for i in range(200)]

    assert arranged(texts).levers[0].reason == "no gain here: rows share no beginnings"


def test_an_engine_that_shares_nothing_gets_file_order() -> None:
    found = arranged(grouped_texts(20, 5), limits=Limits(seats=4))

    assert found.order is None
    assert "computes every prompt whole" in found.levers[0].reason


def test_long_answers_begin_where_the_tail_counts() -> None:
    texts = [f"{i} question" for i in range(100)]
    lengths = [1500 if i == 90 else 20 for i in range(100)]
    found = arranged(texts, lengths)

    assert found.order is not None
    assert found.order[0] == 90
    assert found.levers[1].is_used


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=200), st.integers(2, 6))
def test_several_engines_get_bands_of_like_length(lengths: list[int], number: int) -> None:
    texts = [f"{i} question" for i in range(len(lengths))]
    found = arranged(texts, lengths, limits=Limits(seats=64 * number, replicas=number))
    engines = found.replica_of(range(len(lengths)))

    if not found.levers[1].is_used:
        assert engines == []
        return
    assert found.order is not None
    assert sorted(found.order) == list(range(len(lengths)))
    assert all(0 <= engine < number for engine in engines)
    pairs = sorted(zip(engines, lengths, strict=True), key=lambda pair: (pair[0], -pair[1]))
    assert [length for _, length in pairs] == sorted(lengths, reverse=True)


def test_bands_share_the_work_and_begin_together() -> None:
    draw = random.Random(1)
    lengths = [int(draw.lognormvariate(4.7, 1)) + 4 for _ in range(4000)]
    texts = [f"{i} question" for i in range(4000)]
    limits = Limits(seats=5120, replicas=5)
    found = arrange(requests(texts, lengths), PlanConfig(), limits, behind=1_000_000)
    engines = found.replica_of(range(4000))

    assert found.order is not None
    work = [sum(n for n, e in zip(lengths, engines, strict=True) if e == k) for k in range(5)]
    assert max(work) < 1.15 * min(work)
    assert {engines[i] for i in found.order[:200]} == {0, 1, 2, 3, 4}
    longest = [
        max(n for n, e in zip(lengths, engines, strict=True) if e == k) for k in range(5)
    ]
    # Steps of all engines together, which take turns on one GPU: far fewer than if each had some of the longest.
    assert sum(longest) < 2.5 * max(longest)


def test_no_tail_where_answers_are_alike_or_unknown() -> None:
    texts = [f"{i} question" for i in range(100)]

    assert "equally long" in arranged(texts).levers[1].reason
    assert "not known" in arranged(texts, [0, *[5] * 99]).levers[1].reason
    many = [f"{i} question" for i in range(3000)]
    assert "of the work of a seat" in arranged(many, [21, *[20] * 2999]).levers[1].reason


def test_groups_with_the_longest_answers_begin_and_stay_whole() -> None:
    texts = grouped_texts(20, 5)
    lengths = [900 if text == texts[50] else 16 for text in texts]
    found = arranged(texts, lengths)

    assert found.order is not None
    assert found.order[0] == 50
    heads = [texts[i][:100] for i in found.order]
    assert sum(a != b for a, b in pairwise(heads)) == 19


def test_file_order_can_be_asked_for() -> None:
    assert arranged(grouped_texts(20, 5), order="file").order is None


@given(
    st.integers(2, 12),
    st.integers(2, 6),
    st.integers(1, 60_000),
    st.integers(0, 60_000),
    st.integers(1, 4),
)
def test_more_room_never_makes_sorting_pay(
    groups: int, each: int, pool: int, more: int, replicas: int
) -> None:
    texts = grouped_texts(groups, each, prefix_chars=800)

    def is_used(kv_tokens: int, number: int) -> bool:
        limits = Limits(shares_prefixes=True, kv_tokens=kv_tokens, seats=4, replicas=number)
        return arranged(texts, limits=limits).levers[0].is_used

    assert is_used(pool, replicas) >= is_used(pool + more, replicas)
    # The same cache parted among more engines is no more room.
    assert is_used(pool, replicas + 1) >= is_used(pool, replicas)


@given(st.integers(2, 10), st.integers(2, 6), st.integers(2, 6))
def test_more_rows_of_the_same_beginnings_save_no_less(
    groups: int, each: int, more: int
) -> None:
    few = arranged(grouped_texts(groups, each), order="prefix").levers[0]
    many = arranged(grouped_texts(groups, each + more), order="prefix").levers[0]

    assert many.is_used >= few.is_used
    assert many.saved_tokens >= few.saved_tokens


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=60),
    st.integers(51, 4000),
    st.integers(0, 4000),
)
def test_a_longer_longest_answer_never_takes_the_tail_away(
    lengths: list[int], longest: int, more: int
) -> None:
    texts = [f"{i} question" for i in range(len(lengths) + 1)]

    def is_used(most: int) -> bool:
        return arranged(texts, [*lengths, most]).levers[1].is_used

    assert is_used(longest + more) >= is_used(longest)
