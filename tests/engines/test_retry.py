"""Waits between attempts: bounded, spread, and never shorter than the server's word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.retry import GiveUp, Policy, Wait, after_failure, read_retry_after

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SHARES = st.floats(0, 1)


@given(st.integers(1, 400), SHARES, st.none() | st.floats(0, 1e6), st.floats(0, 1e5))
def test_waits_are_bounded_and_never_shorter_than_asked(
    attempts: int, share: float, asked_s: float | None, elapsed_s: float
) -> None:
    policy = Policy(max_attempts=300)
    decision = after_failure(
        policy,
        attempts=attempts,
        elapsed_s=elapsed_s,
        retry_after_s=asked_s,
        draw=lambda: share,
    )

    if isinstance(decision, Wait):
        assert attempts < policy.max_attempts
        assert (asked_s or 0) <= decision.seconds
        assert decision.seconds <= policy.max_wait_s * 1.25
        assert elapsed_s + decision.seconds <= policy.budget_s


@given(st.integers(1, 20), SHARES)
def test_attempts_end_at_the_limit(max_attempts: int, share: float) -> None:
    policy = Policy(max_attempts=max_attempts)
    made, elapsed_s = 1, 0.0
    while isinstance(
        decision := after_failure(
            policy,
            attempts=made,
            elapsed_s=elapsed_s,
            retry_after_s=None,
            draw=lambda: share,
        ),
        Wait,
    ):
        elapsed_s += decision.seconds
        made += 1

    assert max_attempts == made


@given(st.integers(1, 8))
def test_back_off_doubles_up_to_the_longest_wait(attempts: int) -> None:
    policy = Policy(max_attempts=10, first_wait_s=0.5, max_wait_s=20)
    decision = after_failure(
        policy, attempts=attempts, elapsed_s=0, retry_after_s=None, draw=lambda: 1.0
    )

    assert Wait(min(20, 0.5 * 2 ** (attempts - 1))) == decision


@given(st.lists(SHARES, min_size=7, max_size=7))
def test_eight_attempts_outlast_an_outage_however_waits_are_drawn(shares: list[float]) -> None:
    policy = Policy(max_attempts=8, first_wait_s=0.2)

    waits = [
        after_failure(
            policy, attempts=i, elapsed_s=0, retry_after_s=None, draw=partial(float, share)
        )
        for i, share in enumerate(shares, 1)
    ]

    assert sum(wait.seconds for wait in waits if isinstance(wait, Wait)) >= 10


def test_waits_do_not_grow_while_the_server_answers_others() -> None:
    policy = Policy(max_attempts=10, first_wait_s=0.5, max_wait_s=20)

    waits = [
        after_failure(
            policy,
            attempts=attempts,
            elapsed_s=0.0,
            retry_after_s=None,
            draw=lambda: 1.0,
            is_well=True,
        )
        for attempts in range(1, 6)
    ]

    assert [Wait(0.5), Wait(1.0), Wait(1.0), Wait(1.0), Wait(1.0)] == waits


def test_rows_that_were_told_the_same_time_are_spread() -> None:
    def decide(share: float) -> Wait | GiveUp:
        return after_failure(
            Policy(), attempts=1, elapsed_s=0, retry_after_s=2, draw=lambda: share
        )

    assert [Wait(2.0), Wait(2.25), Wait(2.5)] == [decide(share) for share in (0.0, 0.5, 1.0)]


def test_too_long_a_wait_is_named() -> None:
    decision = after_failure(
        Policy(), attempts=1, elapsed_s=0, retry_after_s=86400, draw=lambda: 0.5
    )

    assert isinstance(decision, GiveUp)
    assert "86400 s" in decision.reason


def test_budget_ends_attempts() -> None:
    decision = after_failure(
        Policy(budget_s=10), attempts=1, elapsed_s=9.9, retry_after_s=1, draw=lambda: 0.0
    )

    assert GiveUp("after 1 attempts in 10 s") == decision


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        (" 1.5 ", 1.5),
        ("-3", 0.0),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("Sun, 99 Foo 2026 00:00:00 GMT", None),
    ],
)
def test_header_is_seconds_or_nothing(header: str, seconds: float | None) -> None:
    assert seconds == read_retry_after(header, now=NOW)


@given(st.integers(-1000, 100000))
def test_header_is_a_date(ahead_s: int) -> None:
    header = format_datetime(NOW + timedelta(seconds=ahead_s), usegmt=True)

    assert float(max(0, ahead_s)) == read_retry_after(header, now=NOW)


@given(st.text(max_size=40))
def test_no_header_raises(header: str) -> None:
    found = read_retry_after(header, now=NOW)

    assert found is None or found >= 0
