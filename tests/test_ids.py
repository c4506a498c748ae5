"""Repeated ids, whatever lies between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import ids as module
from rowmill.ids import SeenIds

names = st.integers(0, 40).map(lambda number: b"%d" % number if number else b"")
batches = st.lists(st.lists(names, max_size=12), max_size=25)


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECENT_IDS", 5)


def told_by_a_dict(rows: list[list[bytes]]) -> list[tuple[int, int]]:
    first: dict[bytes, int] = {}
    every = [id_ for batch in rows for id_ in batch]
    return [
        (key, first[id_])
        for key, id_ in enumerate(every)
        if id_ and first.setdefault(id_, key) != key
    ]


def told_by_seen_ids(seen: SeenIds, rows: list[list[bytes]]) -> list[tuple[int, int]]:
    told, key = [], 0
    for batch in rows:
        told += seen.add(batch, range(key, key + len(batch)))
        key += len(batch)
    return told


@pytest.mark.usefixtures("short_memory")
@given(batches, st.sampled_from([1, 2, 7, 1 << 30]))
def test_pairs_are_those_of_a_dict_even_where_hashes_collide(
    rows: list[list[bytes]], num_hashes: int
) -> None:
    every = [id_ for batch in rows for id_ in batch]

    def hash_id(id_: bytes) -> int:
        return hash(id_) % num_hashes * (2**64 // num_hashes)

    seen = SeenIds(every.__getitem__, hash_id=hash_id)

    assert told_by_a_dict(rows) == told_by_seen_ids(seen, rows)


@pytest.mark.usefixtures("short_memory")
@given(batches)
def test_the_same_rows_again_tell_nothing_new(rows: list[list[bytes]]) -> None:
    every = [id_ for batch in rows for id_ in batch]
    seen = SeenIds(every.__getitem__)
    told = told_by_seen_ids(seen, rows)

    assert told == told_by_seen_ids(seen, rows)


def test_rows_without_an_id_are_never_told() -> None:
    assert SeenIds(lambda _: b"").add([b"", b"", b""], [1, 2, 3]) == []


def test_one_id_in_every_row_asks_for_the_first_row_seldom() -> None:
    asked = []

    def confirm(key: int) -> bytes:
        asked.append(key)
        return b"same"

    seen = SeenIds(confirm)
    others = 0
    for key in range(0, 200_000, 1_000):
        ids = [b"same", *(b"%d" % (others + at) for at in range(999))]
        others += 999
        expected = [(key, 0)] if key else []

        assert expected == seen.add(ids, range(key, key + 1_000))
    assert {0} == set(asked)
    assert len(asked) <= 200_000 // module.RECENT_IDS + 1


def test_many_ids_are_few_runs_and_all_are_found_again() -> None:
    seen = SeenIds(lambda key: b"%d" % key)
    for start in range(0, 400_000, 8_000):
        keys = range(start, start + 8_000)

        assert seen.add([b"%d" % key for key in keys], keys) == []
    again = range(0, 400_000, 997)

    assert len(seen._runs) <= 3
    assert [(key + 400_000, key) for key in again] == seen.add(
        [b"%d" % key for key in again], [key + 400_000 for key in again]
    )


def test_long_ids_are_not_kept() -> None:
    seen = SeenIds(lambda key: b"%d" % key * 100_000)
    for key in range(1_000, 1_300):
        seen.add([b"%d" % key * 100_000], [key])

    assert sum(map(len, seen._recent)) < module.RECENT_BYTES
    assert seen.add([b"1000" * 100_000], [9_999]) == [(9_999, 1_000)]


def test_keys_of_high_shards_come_back_whole() -> None:
    key = (2**24 - 1) << 40 | (2**40 - 1)
    seen = SeenIds(lambda _: b"a")
    seen.add([b"a"], [key])
    seen._flush()

    assert [(7, key)] == seen.add([b"a"], [7])


@pytest.mark.usefixtures("short_memory")
@given(batches, st.lists(names.filter(bool), max_size=9))
def test_ids_that_were_added_are_held_and_others_are_not(
    rows: list[list[bytes]], asked: list[bytes]
) -> None:
    every = [id_ for batch in rows for id_ in batch]
    seen = SeenIds(confirm=every.__getitem__)
    told_by_seen_ids(seen, rows)

    assert seen.holds(asked) == [id_ in every for id_ in asked]
