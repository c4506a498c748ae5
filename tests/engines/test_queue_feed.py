"""Rows between the channel and the engine: in order, each once, no more at a time than is asked for."""

from __future__ import annotations

import threading
import time

import pytest

from rowmill.engines.judging import Judge
from rowmill.engines.queue_feed import QueueFeed
from rowmill.rows import Prompts
from tests.engines.rows_of import byte_prompts


def feed_of(*sizes: int) -> QueueFeed:
    feed, first = QueueFeed(Judge()), 0
    for size in sizes:
        feed.put(byte_prompts(["a"] * size, first_key=first))
        first += size
    return feed


def keys(prompts: Prompts | None) -> list[int]:
    assert prompts is not None
    return prompts.keys


def test_rows_come_whole_and_in_order_until_the_end() -> None:
    feed = feed_of(3, 2)
    feed.put(None)

    assert [0, 1, 2] == keys(feed.take(wait=True))
    assert [3, 4] == keys(feed.take(wait=False))
    assert feed.take(wait=True) is None
    assert feed.take(wait=False) is None
    assert (5, 0) == (feed.taken, feed.waiting())


def test_where_none_wait_an_engine_that_works_is_told_so() -> None:
    feed = feed_of()

    assert [] == keys(feed.take(wait=False))


def test_no_more_rows_than_asked_for_are_with_the_engine() -> None:
    feed = feed_of(5, 2)
    feed.hold(3)

    assert [0, 1, 2] == keys(feed.take(wait=True))
    assert [] == keys(feed.take(wait=False))
    feed.note_answered(1)
    assert [3] == keys(feed.take(wait=False))
    feed.note_answered(3)
    assert [4] == keys(feed.take(wait=False))
    assert [5, 6] == keys(feed.take(wait=False))


def test_a_lower_number_waits_for_what_is_under_way_and_none_lets_all_in() -> None:
    feed = feed_of(4, 4, 4)
    feed.take(wait=True)
    feed.hold(2)
    feed.note_answered(2)

    assert [] == keys(feed.take(wait=False))
    feed.note_answered(1)
    assert [4] == keys(feed.take(wait=False))
    feed.hold(0)
    assert [5, 6, 7] == keys(feed.take(wait=False))
    assert [8, 9, 10, 11] == keys(feed.take(wait=False))


def test_the_end_is_told_also_while_rows_are_held_back() -> None:
    feed = feed_of(2)
    feed.hold(1)
    feed.put(None)
    feed.take(wait=True)
    assert [] == keys(feed.take(wait=False))

    feed.drop()

    assert feed.take(wait=True) is None


@pytest.mark.parametrize("change", ["answered", "hold"])
def test_an_engine_that_waits_is_let_go_by_what_makes_room(change: str) -> None:
    feed = feed_of(2)
    feed.hold(1)
    feed.take(wait=True)
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(keys(feed.take(wait=True))))
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()

    if change == "answered":
        feed.note_answered(1)
    else:
        feed.hold(2)

    thread.join(5)
    assert [[1]] == found
