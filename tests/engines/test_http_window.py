"""How many requests at once: what the window comes to, beside endpoints of every temper. Virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.http_gauges import is_crowded, read
from rowmill.engines.http_lanes import Lane, Lanes
from rowmill.engines.http_window import Window
from tests.engines.slots import Endpoint, Seen, Simulation


def seen(
    endpoint: Endpoint, *, start: int = 64, ceiling: int = 512, seconds: float = 60.0
) -> Seen:
    window = Window(start=start, ceiling=ceiling, now=0.0)
    return Simulation(endpoint, window, seed=1).run(seconds)


def test_an_endpoint_that_refuses_is_filled_and_little_is_refused() -> None:
    found = seen(Endpoint(slots=32, service_s=0.5))

    assert found.rate > 0.9 * 32 / 0.5
    assert found.requests < 1.1 * found.rows
    assert 28 <= sorted(found.limits)[len(found.limits) // 2] <= 36


def test_refusals_that_come_whatever_is_asked_are_no_reason_to_ask_less() -> None:
    endpoint = Endpoint(64, 0.25, rate_429=0.1, rate_other=0.06, rate_hang=0.01)

    found = seen(endpoint)

    assert found.rate > 0.85 * 64 / 0.25
    assert found.requests < 1.3 * found.rows


def test_a_window_that_is_far_too_large_comes_down_to_what_was_worked_on_at_once() -> None:
    endpoint = Endpoint(64, 0.25, rate_429=0.1, rate_other=0.06, rate_hang=0.01)

    found = seen(endpoint, start=512, seconds=5.0)

    assert found.limits[19] < 200
    assert found.over < 1500


def test_a_window_grows_to_what_an_endpoint_takes_and_stops_where_rows_would_wait() -> None:
    found = seen(Endpoint(slots=100, service_s=1.0, queues=True))

    assert found.rate > 0.9 * 100
    assert sorted(found.limits)[len(found.limits) // 2] < 140


def test_a_request_that_hangs_lends_its_seat() -> None:
    endpoint = Endpoint(4, 0.1, queues=True, rate_hang=0.02, timeout_s=30.0)

    held = seen(endpoint, start=4, ceiling=4)
    lent = seen(endpoint, start=4, ceiling=64)

    assert lent.rate > 2 * held.rate


@given(
    start=st.integers(1, 600),
    ceiling=st.integers(1, 600),
    slots=st.integers(1, 100),
    share=st.sampled_from([0.0, 0.1, 0.9]),
)
def test_a_window_stays_between_one_and_its_ceiling(
    start: int, ceiling: int, slots: int, share: float
) -> None:
    found = seen(
        Endpoint(slots, 0.2, rate_429=share), start=start, ceiling=ceiling, seconds=3.0
    )

    assert found.limits
    assert 1 <= min(found.limits) <= max(found.limits) <= ceiling


def test_an_endpoint_is_well_while_it_answers_more_than_it_fails() -> None:
    one = lane(0)
    for key in range(40):
        one.begin(key, 0.0)
        one.answered(key, 0.1)
        one.end(key)
    assert one.is_well

    for _ in range(40):
        one.failed()

    assert not one.is_well


def lane(number: int, limit: int = 8) -> Lane:
    return Lane(
        f"http://{number}", Window(start=limit, ceiling=limit, now=0.0), retry_share=0.5
    )


def body(prefix: int, own: int) -> bytes:
    return b"%d " % prefix * 1000 + b"own %d" % own


def test_rows_that_begin_alike_go_to_one_endpoint_and_loads_stay_even() -> None:
    lanes = Lanes([lane(i, 1000) for i in range(4)], seats=4000)
    went: dict[int, set[str]] = {}
    for own in range(20):
        for prefix in range(40):
            picked = lanes.pick(lanes.with_room(0.0), body(prefix, own), None)
            picked.begin(own * 40 + prefix, 0.0)
            went.setdefault(prefix, set()).add(picked.root)

    assert sum(len(roots) for roots in went.values()) <= 50
    loads = [one.in_flight for one in lanes.all]
    assert max(loads) <= 1.3 * min(loads) + 8


def test_an_endpoint_that_is_down_gets_one_row_at_a_time_and_begins_again_with_few() -> None:
    one, now = lane(0, 100), 0.0
    one.begin(1, now)
    one.fall(1, now, "gone")
    one.end(1)
    assert 0 == one.room(now)

    now = 1.0
    assert 1 == one.room(now)
    one.begin(2, now)
    assert 0 == one.room(now)
    one.answered(2, now)
    one.end(2)

    assert 1 <= one.room(now) <= 4
    assert 0 == len(Lanes([one], seats=0).with_room(now))


def test_retries_beyond_the_budget_take_an_endpoint_down_until_it_answers() -> None:
    one = lane(0, 1000)
    for key in range(100):
        one.begin(key, 0.0)
        one.must_retry(key, 0.0, "HTTP 500")
    assert one.down_since < 0

    one.must_retry(100, 0.0, "HTTP 500")

    assert 0 == one.down_since
    assert 0 == Lanes([one], seats=9).down_for(0.0)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (
            b'# HELP x\nvllm:num_requests_waiting{a="b"} 3.0\nvllm:kv_cache_usage_perc{} 0.5',
            (3.0, 0.5),
        ),
        (
            b'vllm:num_requests_waiting_by_reason{r="c"} 9.0\nvllm:num_requests_waiting 2',
            (2.0, 0.0),
        ),
        (b"llamacpp:requests_deferred 4\n", (4.0, 0.0)),
        (b"<html>not found</html>", None),
    ],
)
def test_gauges_of_servers_are_read(page: bytes, found: tuple[float, float] | None) -> None:
    assert found == read(page)


def test_rows_that_wait_at_the_server_are_a_crowd() -> None:
    assert is_crowded(30, 0.1, in_flight=100)
    assert is_crowded(1, 0.99, in_flight=100)
    assert not is_crowded(1, 0.5, in_flight=100)
