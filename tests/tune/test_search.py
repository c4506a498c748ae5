"""Which settings are tried, in which order, and when it is enough: over curves that are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rowmill.forecast.steady import Rate
from rowmill.tune.moves import Move
from rowmill.tune.search import Found, Tried, halve, look_again, search, try_move
from rowmill.tune.stand import chosen_of
from rowmill.tune.trial import Measured, Patience

Curve = Callable[[dict[str, Any], int], float]


def measured(rate: float, in_flight: int, share: float = 0.02) -> Measured:
    half = share * rate
    return Measured(
        in_flight=in_flight,
        rate=Rate(rate, rate - half, rate + half, 10.0, 16),
        rows_s=rate,
        tokens_s=rate,
        hit_rate=0.0,
    )


class Known:
    """A place whose engines have a known rate."""

    def __init__(self, curve: Curve, *, seats: int, left_s: float = 1e6) -> None:
        self.curve, self.seats, self._left_s = curve, seats, left_s
        self.started: list[dict[str, Any]] = []
        self.runs: list[tuple[int, float]] = []
        self.is_over = False

    def start(self, changes: dict[str, Any], levels: Sequence[int] | None) -> list[Tried]:
        self.started.append(changes)
        seats = changes.get("seats", self.seats)
        ranked = halve(
            _Open(self, changes), levels or [seats, seats // 2, seats // 4], PATIENCE
        )
        return [
            Tried(
                changes=changes,
                in_flight=one.in_flight,
                measured=one,
                seats=seats,
                start_s=0.0 if i else 60.0,
            )
            for i, one in enumerate(ranked)
        ]

    def left_s(self, best: Measured) -> float:
        return self._left_s


class _Open:
    def __init__(self, place: Known, changes: dict[str, Any]) -> None:
        self._place, self._changes = place, changes

    def measure(self, in_flight: int, patience: Patience) -> Measured | None:
        self._place.runs.append((in_flight, patience.most_s))
        return measured(self._place.curve(self._changes, in_flight), in_flight)


PATIENCE = Patience(most_s=80.0)


def chain(name: str, *values: int, gain: float = 0.1) -> list[Move]:
    return [Move(name, {name: value}, gain, "a rule") for value in values]


def test_the_worse_half_ends_after_each_round_and_the_better_runs_twice_as_long() -> None:
    place = Known(lambda _, rows: 100 - abs(rows - 32), seats=64)

    ranked = halve(_Open(place, {}), [64, 32, 16, 8], PATIENCE)

    assert ranked[0].in_flight == 32
    assert place.runs[:4] == [(64, 20.0), (32, 20.0), (16, 20.0), (8, 20.0)]
    # What is surely worse does not run again, but for what the engine has by itself: that must lose twice.
    assert place.runs[4:] == [(64, 20.0)]


def test_one_bad_turn_of_what_the_engine_has_changes_nothing() -> None:
    place = Known(lambda _, rows: float(rows), seats=64)
    turns = iter([1.0])
    place.curve = lambda _, rows: next(turns, 64.0) if rows == 64 else float(rows)

    assert halve(_Open(place, {}), [64, 32, 16, 8], PATIENCE)[0].in_flight == 64


class _Slow:
    """An engine of which short turns tell nothing."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, float]] = []

    def measure(self, in_flight: int, patience: Patience) -> Measured | None:
        self.runs.append((in_flight, patience.most_s))
        return measured(10.0, in_flight) if patience.most_s > 50 else None


def test_where_short_turns_tell_nothing_fewer_numbers_get_longer_ones() -> None:
    slow = _Slow()

    (found,) = halve(slow, [64, 32, 16, 8], PATIENCE)

    assert found.in_flight == 64
    assert [rows for rows, _ in slow.runs] == [64, 32, 16, 8, 64, 32, 64]
    assert halve(slow, [64, 32], Patience(most_s=10.0)) == []


def test_rows_at_once_that_were_best_are_chosen_with_what_was_tried_on_top() -> None:
    place = Known(
        lambda changes, rows: (100.0 + 40 * len(changes)) / (1 + abs(rows - 32)), seats=64
    )

    found = search(place, lambda: [chain("tokens", 1)], most_starts=2)

    chosen = chosen_of(found)
    assert chosen["tokens"][0] == 1
    assert chosen["seats"][0] == 32
    assert "64 did 3" in chosen["seats"][1]


def test_what_may_be_as_good_runs_again() -> None:
    place = Known(lambda _, rows: {64: 100.0, 32: 101.0}.get(rows, 50.0), seats=64)

    ranked = halve(_Open(place, {}), [64, 32, 16, 8], PATIENCE)

    assert place.runs[4:] == [(32, 40.0), (64, 40.0), (64, 40.0)]
    # One percent more is no reason to change what the engine has by itself.
    assert ranked[0].in_flight == 64


def test_a_chain_goes_on_until_the_curve_bends() -> None:
    rates = {8192: 100.0, 16_384: 120.0, 32_768: 121.0, 65_536: 400.0}
    place = Known(lambda changes, _: rates[changes.get("tokens", 8192)], seats=64)

    found = search(place, lambda: [chain("tokens", 16_384, 32_768, 65_536)], most_starts=9)

    assert place.started == [{}, {"tokens": 16_384}, {"tokens": 32_768}]
    assert found.best is not None
    assert found.best.changes == {"tokens": 16_384}
    assert [one.verdict for one in found.tried if one.start_s][1:] == [
        "+20%: taken",
        "+1%: the curve bends here",
    ]


@pytest.mark.parametrize("most", [1, 2, 4])
def test_no_more_starts_than_allowed(most: int) -> None:
    place = Known(lambda changes, _: 100.0 + 50 * len(changes), seats=64)
    chains = [chain(name, 1) for name in "abcdefg"]

    found = search(place, lambda: chains, most_starts=most)

    assert len(place.started) == most == found.starts
    assert sum("as many as are allowed" in one.verdict for one in found.tried) == 8 - most


def test_a_start_that_costs_more_than_it_may_save_is_left_out() -> None:
    place = Known(lambda _, rows: 100.0, seats=64, left_s=600.0)

    found = search(
        place, lambda: [chain("a", 1, gain=0.05), chain("b", 1, gain=0.2)], most_starts=4
    )

    # Of ten minutes a fifth more speed saves 100 s, a twentieth 29 s; a start costs 60 s.
    assert place.started == [{}, {"b": 1}]
    (left_out,) = [one for one in found.tried if one.changes == {"a": 1}]
    assert "may save 28.6 s" in left_out.verdict


def test_the_best_of_a_grid_is_reached_within_a_tenth_with_four_starts() -> None:
    """Curves as engines have them: a knee in the tokens of a step, and one in the rows at once."""
    for best_tokens, best_rows in [(8192, 64), (16_384, 256), (32_768, 128)]:

        def curve(
            changes: dict[str, Any], rows: int, bt: int = best_tokens, br: int = best_rows
        ) -> float:
            tokens = int(changes.get("tokens", 8192))
            knee = min(1.0, rows / br) if rows <= br else (br / rows) ** 0.2
            return float(1000.0 * knee * min(tokens / bt, (bt / tokens) ** 0.3))

        place = Known(curve, seats=256)
        found = search(place, lambda: [chain("tokens", 16_384, 32_768)], most_starts=4)
        grid = [curve({"tokens": t}, r) for t in (8192, 16_384, 32_768) for r in (64, 128, 256)]

        assert found.best is not None
        assert found.best.measured is not None
        assert found.best.measured.rate.mean >= 0.9 * max(grid)
        assert len(place.started) <= 4


@pytest.mark.parametrize(
    ("second", "is_taken"), [(100.0, True), (139.0, False), (150.0, False)]
)
def test_what_won_over_a_slow_moment_is_not_taken_after_a_second_look(
    second: float, is_taken: bool
) -> None:
    turns = iter([100.0])
    place = Known(lambda changes, _: 140.0 if changes else next(turns, second), seats=64)
    first = place.start({}, [64])[0]
    found = Found(best=first, tried=[first], starts=1)
    try_move(place, found, chain("kv", 8)[0])
    assert found.best is not first

    look_again(place, found, first)

    assert place.started == [{}, {"kv": 8}, {}]
    assert found.starts == 3
    assert found.best is not None
    assert bool(found.best.changes) == is_taken
    verdicts = [one.verdict for one in found.tried if one.changes]
    assert ["taken" in one and "not taken" not in one for one in verdicts] == [is_taken]


@pytest.mark.parametrize(("peak", "least", "found"), [(4, 1, 4), (1, 1, 1), (1, 6, 8)])
def test_where_the_fewest_rows_at_once_are_best_fewer_are_tried(
    peak: int, least: int, found: int
) -> None:
    place = Known(lambda _, rows: 1000.0 / (abs(rows - peak) + 10), seats=64)

    ranked = halve(_Open(place, {}), [64, 32, 16], PATIENCE, least=least)

    assert ranked[0].in_flight == found
    assert len(place.started) == 0


def test_more_seats_are_not_tried_where_fewer_rows_at_once_did_more() -> None:
    place = Known(lambda _, rows: 1000.0 / (rows + 10), seats=64)

    found = search(place, lambda: [chain("seats", 128), chain("tokens", 1)], most_starts=9)

    assert place.started == [{}, {"tokens": 1}]
    assert "rows at once did more" in found.tried[-2].verdict + found.tried[-1].verdict
