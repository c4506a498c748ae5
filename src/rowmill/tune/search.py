"""Chains of moves, and someone who measures -> which settings are best, what was tried, and what was not worth it.

Promises: at most so many starts; a start only where what it is expected to save on the rest of the job is more than it costs;
of several numbers of rows in flight the worse half is left out after each round, and the better half runs twice as long.
Knows nothing of: engines, rows, files.
Source: successive halving (Karnin, Koren, Somekh 2013; Jamieson, Talwalkar 2016), with a race: what is surely worse ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from rowmill.shown.spans import duration
from rowmill.tune.moves import Move
from rowmill.tune.trial import Measured, Patience

BEND = 0.03
"""A move that brings less than this is the end of its chain: two equal runs differ by as much."""
FADES = 0.5
"""The next of a chain is expected to bring this part of what the one before brought."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, measured or left out."""

    changes: dict[str, Any]
    in_flight: int = 0
    measured: Measured | None = None
    start_s: float = 0.0
    seats: int = 0
    """That the engines had."""
    replicas: int = 1
    gpus: int = 1
    edges_s: float = 0.0
    """What filling and emptying the seats took, beyond the work done meanwhile."""
    expected_gain: float = 0.0
    why: str = ""
    """Why it was tried."""
    verdict: str = ""
    """What became of it."""
    is_kept: bool = True
    """Whether its rows are results of the job."""


class Level(Protocol):
    """Engines that are open."""

    def measure(self, in_flight: int, patience: Patience) -> Measured | None:
        """One number of rows in flight; None: too few rows are left to tell."""
        ...


class Place(Protocol):
    """Who starts engines and measures."""

    def start(self, changes: dict[str, Any], levels: Sequence[int] | None) -> list[Tried]:
        """Start engines with changed settings and measure; the best comes first, empty: nothing could be measured.

        Args:
            levels: rows in flight to try; None: those that the engine suggests.
        """
        ...

    def left_s(self, best: Measured) -> float:
        """How long the rest of the job takes at a rate."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no more should be tried: rows, time or patience are at an end."""
        ...


class Found(msgspec.Struct, kw_only=True):
    """What the search found."""

    best: Tried | None = None
    tried: list[Tried] = []
    starts: int = 0


def search(place: Place, chains: Callable[[], list[list[Move]]], *, most_starts: int) -> Found:
    """Find the best settings.

    Args:
        chains: called once the first engine is open.
    """
    found = Found()
    first = place.start({}, None)
    found.starts = 1
    found.tried += first
    if not first or first[0].measured is None:
        return found
    found.best = first[0]
    waiting = [list(chain) for chain in chains()]
    while waiting and not place.is_over:
        waiting.sort(key=lambda chain: -chain[0].gain)
        chain = waiting.pop(0)
        move = chain.pop(0)
        refused = _refusal(place, found, move, most_starts)
        if refused:
            found.tried.append(_left_out(move, refused))
            continue
        gained = try_move(place, found, move)
        if gained > BEND and chain:
            chain[0] = msgspec.structs.replace(chain[0], gain=FADES * gained)
            waiting.append(chain)
    return found


def _refusal(place: Place, found: Found, move: Move, most_starts: int) -> str:
    """Why a move is not worth a start; empty where it is."""
    best = found.best
    assert best is not None
    assert best.measured is not None
    if found.starts >= most_starts:
        return f"not tried: {most_starts} starts of the engine are as many as are allowed"
    if move.changes.get("seats", 0) > best.in_flight > 0 and best.in_flight < best.seats:
        return f"not tried: {best.in_flight:,} rows at once did more than the {best.seats:,} that it has seats for"
    saves = place.left_s(best.measured) * (1 - 1 / (1 + move.gain))
    if saves <= best.start_s:
        return (
            f"not tried: it may save {duration(saves)} of what is left, and a start costs"
            f" {duration(best.start_s)}"
        )
    return ""


def try_move(place: Place, found: Found, move: Move) -> float:
    """Measure a move on top of what is best so far; what it gained, negative where it lost."""
    best = found.best
    assert best is not None
    assert best.measured is not None
    changes = {**best.changes, **move.changes}
    # Rows in flight that were best stay, unless the move is about them.
    is_about_rows = "seats" in move.changes or "replicas" in move.changes
    levels = None if is_about_rows else [best.in_flight] if best.in_flight else None
    rows = place.start(changes, levels)
    found.starts += 1
    if not rows or rows[0].measured is None:
        found.tried += [msgspec.structs.replace(one, why=move.why) for one in rows] or [
            _left_out(move, "too few rows are left to tell")
        ]
        return -1.0
    gained = _gain(rows[0].measured, best.measured)
    verdict = f"{gained:+.0%}"
    if not _is_better(rows[0].measured, best.measured):
        gained = min(gained, BEND)
    if gained > BEND:
        verdict += ": taken"
    else:
        verdict += ": the curve bends here" if gained > -BEND else ": worse"
    head = msgspec.structs.replace(
        rows[0], why=move.why, expected_gain=move.gain, verdict=verdict
    )
    found.tried += [head, *rows[1:]]
    if gained > BEND:
        found.best = head
    return gained


def look_again(place: Place, found: Found, before: Tried) -> None:
    """Measure once more what was best before the last move; it is the best again where the two are not surely apart.

    Starts lie minutes from each other, and others may have used the machine during one of them: that is no reason for other
    answers, nor for dropping the rows that are answered.
    """
    taken = found.best
    assert taken is not None
    assert taken.measured is not None
    rows = place.start(before.changes, [before.in_flight] if before.in_flight else None)
    found.starts += 1
    if not rows or rows[0].measured is None:
        return
    gained = _gain(taken.measured, rows[0].measured)
    again = msgspec.structs.replace(
        rows[0],
        why="a second look at what was best before",
        verdict=f"{_gain(rows[0].measured, taken.measured):+.0%}",
    )
    found.tried += [again, *rows[1:]]
    if not _is_better(taken.measured, rows[0].measured):
        told = f"{taken.verdict.partition(':')[0]}, {gained:+.0%} at a second look: not taken"
        at = found.tried.index(taken)
        found.tried[at] = msgspec.structs.replace(taken, verdict=told)
        found.best = again


def _gain(one: Measured, other: Measured) -> float:
    """So much faster one is: 0.1 is a tenth."""
    return one.rate.mean / other.rate.mean - 1


def _is_better(one: Measured, other: Measured) -> bool:
    """Whether it is, by more than two equal runs differ, and the two intervals do not meet: else it may be chance."""
    return _gain(one, other) > BEND and one.rate.low > other.rate.high


def _left_out(move: Move, verdict: str) -> Tried:
    return Tried(changes=move.changes, expected_gain=move.gain, why=move.why, verdict=verdict)


def halve(
    level: Level, levels: Sequence[int], patience: Patience, *, least: int = 1
) -> list[Measured]:
    """Measure several numbers of rows in flight on open engines; the best comes first.

    Each round gives twice the time of the one before to the better half; who is surely worse than the best is left out. The
    first number, which the engine has by itself, is looked at again before another takes its place: what a busy machine does
    to one short turn is no reason to change a setting. Where the fewest are the best, fewer still are tried: that costs no start.

    Args:
        least: no fewer than these.
    """
    rounds = max(1, (len(levels) - 1).bit_length())
    left = list(levels)
    done: dict[int, Measured] = {}
    for number in range(rounds + 1):
        share = 0.5 ** (rounds - number)
        some = msgspec.structs.replace(
            patience,
            most_s=patience.most_s * share,
            least_s=min(patience.least_s, patience.most_s * share / 3),
        )
        for one in left:
            found = level.measure(one, some)
            if found is not None:
                done[one] = found
        left = _better_half(left, done)
        if left[0] in done and len(left) == 1 and done[left[0]].rate.share <= patience.share:
            break
    if left[0] not in done:
        return []
    best = done[left[0]]
    if left[0] != levels[0]:
        best = _confirmed(level, levels[0], some, best, done)
    if best.in_flight == min(levels) < levels[0]:
        best = _with_fewer(level, best, some, least, done)
    return [
        best,
        *sorted((m for m in done.values() if m is not best), key=lambda m: -m.rate.mean),
    ]


def _with_fewer(
    level: Level, best: Measured, patience: Patience, least: int, done: dict[int, Measured]
) -> Measured:
    """The best of halves of halves, as long as each is better than the one before."""
    while best.in_flight // 2 >= least:
        fewer = level.measure(best.in_flight // 2, patience)
        if fewer is None:
            return best
        done[fewer.in_flight] = fewer
        if fewer.rate.mean <= (1 + BEND) * best.rate.mean:
            return best
        best = fewer
    return best


def _better_half(left: Sequence[int], done: Mapping[int, Measured]) -> list[int]:
    """Numbers that go on, the best first; where none could be told in the time, the first ones have more of it."""
    ranked = sorted((done[one] for one in left if one in done), key=lambda m: -m.rate.mean)
    if not ranked:
        return list(left[: max(1, len(left) // 2)])
    near = [one for one in ranked if one.rate.overlaps(ranked[0].rate)]
    return [one.in_flight for one in near[: max(1, len(ranked) // 2)]]


def _confirmed(
    level: Level, own: int, patience: Patience, best: Measured, done: dict[int, Measured]
) -> Measured:
    """The best, or what the engine has by itself, after another look at that."""
    again = level.measure(own, patience)
    if again is None:
        return best
    done[own] = again
    return again if again.rate.mean * (1 + BEND) >= best.rate.mean else best
