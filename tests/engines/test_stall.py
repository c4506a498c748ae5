"""When an engine stands still: time is given."""

from __future__ import annotations

import pytest

from rowmill.engines.ledger import Ledger
from rowmill.engines.stall import FIRST_S, LEAST_S, SLACK, Watch
from tests.engines.rows_of import byte_prompts


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pass_time(clock: Clock, watch: Watch, seconds: float) -> bool:
    """Look each second, as a supervisor does; whether it stood still at the end."""
    end, found = clock.now + seconds, False
    while clock.now < end:
        clock.now = min(end, clock.now + 1)
        found = still(watch)
    return found


def still(watch: Watch, longest_tokens: int = 100, prompt_tokens: int = 1000) -> bool:
    return watch.stands_still(longest_tokens=longest_tokens, prompt_tokens=prompt_tokens)


def test_nothing_known_allows_what_is_in_flight_to_take_long(clock: Clock) -> None:
    watch = Watch(clock=clock)
    short = watch.allowed_s(longest_tokens=1, prompt_tokens=100)
    long = watch.allowed_s(longest_tokens=30_000, prompt_tokens=100_000)

    assert FIRST_S <= short < FIRST_S + 60
    assert long > 30_000


def test_steps_are_signs_within_a_long_row(clock: Clock) -> None:
    watch = Watch(clock=clock)
    for step in range(1, 2000):
        clock.now += 3
        watch.stepped(step)

        assert not still(watch, longest_tokens=30_000)

    assert not pass_time(clock, watch, LEAST_S)
    assert pass_time(clock, watch, 2)


def test_the_same_count_of_steps_is_no_sign(clock: Clock) -> None:
    watch = Watch(clock=clock)
    watch.stepped(7)
    for _ in range(10):
        pass_time(clock, watch, LEAST_S / 8)
        watch.stepped(7)

    assert still(watch)


def test_slow_steps_of_the_past_allow_slow_ones(clock: Clock) -> None:
    watch = Watch(clock=clock)
    clock.now += 300
    watch.stepped(1)  # the first ones compile what later ones use
    clock.now += 40
    watch.stepped(2)

    assert not pass_time(clock, watch, 40 * SLACK - 1)
    assert pass_time(clock, watch, 2)


def test_answers_alone_give_the_pace_of_the_longest_row(clock: Clock) -> None:
    watch = Watch(clock=clock)
    clock.now += 20
    watch.answered(longest_tokens=100)  # 0.2 s a token

    assert watch.allowed_s(longest_tokens=1000, prompt_tokens=0) == SLACK * 0.2 * 1000
    assert watch.allowed_s(longest_tokens=10, prompt_tokens=0) == SLACK * 20


def test_a_time_that_is_given_holds(clock: Clock) -> None:
    watch = Watch(5.0, clock=clock)
    clock.now += 5.1

    assert still(watch)

    watch.begin()

    assert not still(watch)


def test_a_verdict_that_may_have_been_wrong_doubles_what_is_allowed(clock: Clock) -> None:
    watch = Watch(clock=clock)
    watch.stepped(1)
    before = watch.allowed_s(longest_tokens=10, prompt_tokens=10)
    watch.doubt()

    assert watch.allowed_s(longest_tokens=10, prompt_tokens=10) == 2 * before


def test_another_process_counts_its_steps_anew(clock: Clock) -> None:
    watch = Watch(clock=clock)
    watch.stepped(500)
    watch.restart()
    pass_time(clock, watch, LEAST_S - 1)
    watch.stepped(1)

    assert not pass_time(clock, watch, LEAST_S - 1)


def test_who_was_stopped_himself_blames_nobody(clock: Clock) -> None:
    watch = Watch(5.0, clock=clock)
    clock.now += 3600

    assert not still(watch)
    assert pass_time(clock, watch, 6)


def test_rows_without_a_limit_count_as_long_as_the_context() -> None:
    ledger = Ledger()

    assert (0, 0) == ledger.longest(4096)

    ledger.add(byte_prompts(["abc", "de"], max_tokens=16))

    assert (16, 5) == ledger.longest(4096)

    ledger.add(byte_prompts(["f"], first_key=7, max_tokens=0))

    assert (4096, 6) == ledger.longest(4096)
