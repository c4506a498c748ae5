"""Batches of prompts that are parted, joined and sent: a row keeps all that it came with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowmill.engines.channel import Channel, pair
from rowmill.media_item import Media
from rowmill.rows import Pair, Piece, Prompts, Sampling


def full(rows: int, *, first_key: int = 0) -> Prompts:
    """Rows that have something in every field."""
    keys = [first_key + i for i in range(rows)]
    lengths = [1 + key % 3 for key in keys]
    return Prompts(
        keys=keys,
        ids=np.array(
            [key for key, n in zip(keys, lengths, strict=True) for _ in range(n)], np.uint32
        ),
        stops=np.cumsum(lengths, dtype=np.int64),
        max_tokens=[key + 1 for key in keys],
        samplings=[Sampling(seed=key) for key in keys],
        sampling_of=list(range(rows)),
        wires=[b"%d" % key for key in keys],
        wire_fields=[f"field {key}" for key in keys],
        replica_of=[key % 4 for key in keys],
        pieces={key: [Piece(1, 0, key)] for key in keys},
        cut_from={key: key + 100 for key in keys},
        media={key: [Media("image", "inline", "image", content=b"%d" % key)] for key in keys},
        pairs={key: [Pair(1, key)] for key in keys},
    )


def rows_of(prompts: Prompts) -> dict[int, dict[str, Any]]:
    """All that is known of each row, by key; fields that every row has must be there for each."""
    found: dict[int, dict[str, Any]] = {}
    ids = [one.tolist() for one in prompts.row_ids()]
    for i, key in enumerate(prompts.keys):
        row: dict[str, Any] = {"sampling": prompts.samplings[prompts.sampling_of[i]]}
        for name in set(Prompts.__struct_fields__) - {
            "ids",
            "stops",
            "samplings",
            "sampling_of",
        }:
            column = getattr(prompts, name)
            row[name] = column[key] if isinstance(column, dict) else column[i]
        found[key] = {**row, "ids": ids[i]}
    return found


def sent(prompts: Prompts) -> Prompts:
    here, there = (Channel(sock) for sock in pair())
    try:
        here.send_prompts(prompts)
        _, found = there.receive()
    finally:
        here.close()
        there.close()
    assert isinstance(found, Prompts)
    return found


def test_a_row_has_something_in_every_field() -> None:
    empty = [name for name in Prompts.__struct_fields__ if not len(getattr(full(3), name))]

    assert empty == []


@pytest.mark.parametrize("rows", [[], [4], [7, 0, 3]])
def test_rows_that_are_taken_keep_all(rows: list[int]) -> None:
    whole = full(8)

    found = rows_of(whole.take(rows))

    assert found == {key: rows_of(whole)[key] for key in rows}
    assert list(found) == rows


@pytest.mark.parametrize(("start", "stop"), [(0, 8), (2, 5), (3, 3)])
def test_neighbours_keep_all(start: int, stop: int) -> None:
    whole = full(8)

    found = rows_of(whole.slice(start, stop))

    assert found == {key: rows_of(whole)[key] for key in range(start, stop)}


def test_rows_that_are_joined_keep_all() -> None:
    window, other = full(8), full(5, first_key=100)

    found = Prompts.join([window.slice(4, 8), other, window.take([2, 0])])

    assert found.keys == [4, 5, 6, 7, 100, 101, 102, 103, 104, 2, 0]
    everything = rows_of(window) | rows_of(other)
    assert rows_of(found) == {key: everything[key] for key in found.keys}


def test_rows_are_for_any_engine_where_some_parts_name_none() -> None:
    free = full(3, first_key=100)
    free.replica_of = []

    assert Prompts.join([full(3), free]).replica_of == []


def test_rows_that_are_sent_keep_all_but_the_engine_they_were_for() -> None:
    whole = full(8)

    found = sent(whole.slice(2, 6))

    assert found.replica_of == []
    found.replica_of = whole.replica_of[2:6]
    assert rows_of(found) == {key: rows_of(whole)[key] for key in range(2, 6)}
