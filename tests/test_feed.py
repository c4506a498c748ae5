"""How many rows may be in flight, with a clock of our own."""

from __future__ import annotations

from rowmill.feed import AHEAD_S, MAX_AHEAD_ROWS, Feed
from rowmill.rows import Limits


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_no_more_than_the_seats_before_rows_are_proved() -> None:
    clock = Clock()
    feed = Feed(Limits(seats=4), prove_rows=200, clock=clock)
    for _ in range(49):
        feed.sent(4, 40)
        clock.now += 1
        feed.answered(4)

    assert 4 == feed.target_rows
    feed.sent(4, 40)
    assert not feed.wait_room(1, 0)


def test_then_what_is_admitted_in_two_seconds_comes_on_top() -> None:
    clock = Clock()
    feed = Feed(Limits(seats=4), prove_rows=0, clock=clock)
    for _ in range(50):
        feed.sent(10, 100)
        clock.now += 1
        feed.answered(10)

    assert 4 + int(10 * AHEAD_S) - 1 <= feed.target_rows <= 4 + 10 * AHEAD_S


def test_rows_ahead_are_bounded_however_quick_the_engine() -> None:
    clock = Clock()
    feed = Feed(Limits(seats=4), prove_rows=0, clock=clock)
    for _ in range(50):
        feed.sent(10**6, 1)
        clock.now += 1
        feed.answered(10**6)

    assert 4 + MAX_AHEAD_ROWS == feed.target_rows


def test_tokens_in_flight_stay_under_the_pool() -> None:
    feed = Feed(Limits(seats=100, kv_tokens=1000), prove_rows=0)
    feed.sent(10, 1200)

    assert not feed.wait_room(1, 0)
    feed.answered(1)
    assert feed.wait_room(1, 0)


def test_an_idle_engine_takes_a_batch_of_any_size() -> None:
    assert Feed(Limits(seats=1), prove_rows=0).wait_room(1000, 0)


def test_what_rows_share_and_what_they_will_generate_counts() -> None:
    feed = Feed(Limits(seats=100, kv_tokens=1000), prove_rows=0)
    feed.sent(10, 1200)
    feed.answered(1, prompt_tokens=120, cached_tokens=108, output_tokens=2)

    assert feed.wait_room(1, 0)
    feed = Feed(Limits(seats=100, kv_tokens=1000), prove_rows=0)
    feed.sent(10, 100, outputs=2000)

    assert not feed.wait_room(1, 0)


def test_few_seats_stand_empty_before_the_next_message() -> None:
    assert Feed(Limits(seats=1024), prove_rows=0).batch_rows == 64
    assert Feed(Limits(seats=8), prove_rows=0).batch_rows == 1


def test_empty_seats_are_counted_by_whether_rows_are_left_to_give() -> None:
    clock = Clock()
    feed = Feed(Limits(seats=4), prove_rows=0, clock=clock)
    clock.now += 100  # before the first row nothing is counted
    feed.sent(1, 10)
    clock.now += 8  # three of four seats are empty
    feed.sent(5, 50)
    clock.now += 2  # more rows than seats
    feed.no_more()
    feed.answered(4)
    clock.now += 6  # two of four, and no row is left to give
    feed.answered(2)
    clock.now += 50  # all is answered
    feed.pass_time()

    assert (16, 6) == (feed.active_s, feed.tail_s)
    assert (6, 3) == (feed.empty_s, feed.tail_empty_s)
    assert 8 * 1 + 2 * 6 + 6 * 2 == feed.row_s
