"""(seed, number) -> Episode: a small job and the faults that will strike it, drawn before anything runs.

The same seed draws the same schedule: nothing here looks at a run. What a moment means on the disk is told in strikes.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from tests.chaos.s3_proxy import Aim, Harm
from tests.kill.small_job import NEVER, Kind

Fault = Literal[
    "parent killed",
    "engine killed",
    "both killed",
    "torn tail",
    "engine stopped",
    "engine frozen",
    "engine out of memory",
    "row kills an engine",
    "row kills every engine",
    "second start",
    "file size limit",
    "disk full",
    "two workers",
    "parent stopped",
    "joined stopped",
    "joined killed",
    "store gone",
    "store: slow down",
    "store: late",
    "store: unanswered",
    "store: cut",
    "store: lost",
]
Sign = Literal["start", "engine", "starts", "commit", "results"]
Lane = Literal[
    "alone", "scripted", "shared", "small disk", "store", "aimed at store", "replicas"
]

LANES: tuple[Lane, ...] = (
    *("alone", "replicas", "scripted", "shared", "small disk", "store", "aimed at store"),
)
AT_STORES = ("store", "aimed at store")
TURNS: tuple[Lane, ...] = (
    *("alone", "shared", "replicas", "store", "scripted"),
    *("alone", "small disk", "alone"),
)
ALONE: tuple[Fault, ...] = (
    *("parent killed", "parent killed", "both killed", "both killed", "torn tail", "torn tail"),
    *("engine killed", "engine killed", "engine stopped", "file size limit", "second start"),
)
ONCE: tuple[Fault, ...] = (
    "engine out of memory",
    "engine out of memory",
    "row kills an engine",
)
SHARED: tuple[Fault, ...] = (
    "parent stopped",
    "joined stopped",
    "joined killed",
    "parent killed",
)
AT_STORE: tuple[Fault, ...] = (
    *("parent killed", "parent killed", "both killed", "engine killed", "engine stopped"),
    "store gone",
)
HARMS: tuple[Harm, ...] = ("slow down", "slow down", "late", "unanswered", "cut", "lost")
AIMS = (
    *(("PUT", "/commits/", 6), ("PUT", "/segments/", 4), ("PUT", "/leases/0", 6)),
    *(("PUT", "/leases/owner", 4), ("PUT", "/plan/", 2), ("PUT", "/run.json", 1)),
    *(("PUT", "/results/", 2), ("PUT", "/done.json", 2), ("PUT", "/.probe-", 4)),
    *(("GET", "/segments/", 3), ("GET", "/commits/", 3), ("POST", "/", 3)),
)
"""Method, part of the path, and to how many of the first such requests."""
HARMED_SHARE, MOST_REQUESTS = 0.04, 3000
SIGNS: tuple[Sign, ...] = ("starts", "starts", "starts", "starts", "commit", "start", "engine")
END_A_PARENT = {"parent killed", "both killed", "torn tail", "file size limit", "store gone"}
DEATHS_A_PARENT = 2
"""A row in flight at more deaths of one parent's engines would rightly be blamed for them."""


@dataclass(frozen=True)
class Moment:
    """When a fault strikes."""

    sign: Sign
    share: float
    """`starts`: of the rows that no engine has started yet, so many must be started first."""
    after_s: float
    """A while after the sign."""


@dataclass(frozen=True)
class Strike:
    """One fault to be tried."""

    fault: Fault
    moment: Moment
    hold_s: float
    """How long what is stopped stays so."""
    draw: int
    """Seeds what is drawn from what lies there: where a file is torn."""


@dataclass(frozen=True)
class Episode:
    """One job and its faults, in order."""

    seed: int
    number: int
    lane: Lane
    kind: Kind
    has_equals: bool
    settings: dict[str, Any]
    scripted: tuple[tuple[Fault, float], ...]
    """Rows that kill their engine: how, and where they stand, as a share of the input."""
    strikes: tuple[Strike, ...]
    has_two_workers: bool
    harms: tuple[tuple[int, Harm], ...] = ()
    """Requests to the store, counted from 0, that come to harm."""
    aims: tuple[Aim, ...] = ()
    """The same, by what they ask."""

    @property
    def rng(self) -> random.Random:
        """Draws the job itself."""
        return random.Random(f"chaos {self.seed} {self.number} job")


def draw_episode(seed: int, number: int, lane: Lane | None = None) -> Episode:
    """The episode of this number. Lanes come in turns, those of one worker more often."""
    rng = random.Random(f"chaos {seed} {number} {lane}")
    lane = lane or TURNS[number % len(TURNS)]
    scripted = _scripted(rng) if lane == "scripted" else ()
    has_two = lane == "shared" or (lane in AT_STORES and rng.random() < 0.3)
    return Episode(
        seed=seed,
        number=number,
        lane=lane,
        kind=rng.choice(("jsonl", "jsonl", "jsonl", "jsonl.gz", "parquet")),
        has_equals=not scripted and rng.random() < 0.4,
        settings=_settings(rng, lane, has_two=has_two),
        scripted=scripted,
        strikes=tuple(_strikes(rng, lane, has_two=has_two, has_rows=bool(scripted))),
        has_two_workers=has_two,
        harms=_harms(rng) if lane == "store" else (),
        aims=_aims(rng) if lane == "aimed at store" else (),
    )


def _aims(rng: random.Random) -> tuple[Aim, ...]:
    """What a store heard and did not answer for is the worst of it, mostly where something is written."""
    harms: tuple[Harm, ...] = (
        "unanswered",
        "unanswered",
        "unanswered",
        "cut",
        "lost",
        "slow down",
    )
    return tuple(
        Aim(method, part, number, rng.choice(harms))
        for method, part, most in AIMS
        for number in range(0, 2 * most, 2)  # the one after it is its second try
        if rng.random() < 0.6
    )


def _harms(rng: random.Random) -> tuple[tuple[int, Harm], ...]:
    numbers = [n for n in range(MOST_REQUESTS) if rng.random() < HARMED_SHARE]
    return tuple((number, rng.choice(HARMS)) for number in numbers)


def _settings(rng: random.Random, lane: Lane, *, has_two: bool) -> dict[str, Any]:
    seats, delay_s = rng.choice(((4, 0.016), (4, 0.024), (8, 0.04), (16, 0.08)))
    settings: dict[str, Any] = {
        "engine.seats": seats,
        "engine.delay_s": delay_s,
        # The seats are then all that is in flight: the tightest bound on what may be repeated.
        "run.max_failed_after": NEVER,
        "run.checkpoint_s": rng.choice((0.1, 1.0)),
        "plan.window_rows": rng.choice((50, 8192)),
        "run.task_rows": rng.choice((50, 70, 100)),
    }
    if lane in AT_STORES:
        # What was answered since the last checkpoint may be asked again: few a second, and checkpoints often.
        settings |= {"engine.seats": 4, "engine.delay_s": 0.06, "run.checkpoint_s": 0.3}
        # A late answer is no reason to take a lease over.
        settings |= {"run.lease_s": 2.5}
    if lane == "replicas":
        settings |= {"engine.replicas": 2, "engine.seats": max(2, seats // 2)}
    if lane == "scripted":
        settings |= {"run.stall_s": 3.0}
    if has_two:
        # A worker claims what it reads ahead: so that it leaves something to another, it must read little.
        settings |= {"run.task_rows": 20, "plan.window_rows": 8}
        settings |= {"validate.first_rows": 20, "engine.seats": 4, "engine.delay_s": 0.06}
    if lane == "shared":
        settings |= {"run.lease_s": 0.4}
    return settings


def _scripted(rng: random.Random) -> tuple[tuple[Fault, float], ...]:
    drawn = rng.random()
    if drawn < 0.25:
        return ()
    if drawn < 0.5:
        return (("row kills every engine", rng.random()),)
    # Far from each other: what is in flight at one is answered before the next.
    places = rng.uniform(0, 0.4), rng.uniform(0.6, 1)
    return tuple((rng.choice(ONCE), place) for place in places)


def _strikes(rng: random.Random, lane: Lane, *, has_two: bool, has_rows: bool) -> list[Strike]:
    if has_two:
        faults = [rng.choice(SHARED) for _ in range(rng.randint(1, 3))]
        return [_strike(rng, fault, ("starts", "starts", "commit")) for fault in faults]
    if lane == "small disk":
        faults = ["disk full"] * rng.randint(3, 5)
        return [
            _strike(rng, f, ("starts", "starts", "starts", "commit", "start")) for f in faults
        ]
    if lane == "scripted":
        faults = [rng.choice(ALONE[:6]) for _ in range(rng.randint(0, 2))]
        # With rows that kill engines there would be deaths enough to blame others.
        faults += [] if has_rows else ["engine frozen", "engine frozen"]
        return [_strike(rng, fault, SIGNS) for fault in faults]
    few, many, faults_of = (1, 3, AT_STORE) if lane in AT_STORES else (4, 8, ALONE)
    strikes: list[Strike] = []
    engine_deaths = 0
    for _ in range(rng.randint(few, many)):
        fault = rng.choice(faults_of)
        if fault.startswith("engine") and engine_deaths == DEATHS_A_PARENT:
            fault = "parent killed"
        engine_deaths = (
            0 if fault in END_A_PARENT else engine_deaths + fault.startswith("engine")
        )
        strikes.append(_strike(rng, fault, SIGNS))
    if rng.random() < 0.5:
        ending = Moment("results", 0, rng.choice((0, 0, 0.001, 0.01)))
        strikes.append(Strike("parent killed", ending, 0, 0))
    return strikes


def _strike(rng: random.Random, fault: Fault, signs: tuple[Sign, ...]) -> Strike:
    sign = rng.choice(signs)
    if fault in {"engine killed", "engine stopped", "engine frozen", "torn tail"}:
        sign = rng.choice(("starts", "starts", "starts", "commit"))
    after_s = {
        "start": rng.uniform(0.05, 0.7),
        "engine": rng.uniform(0, 0.3),
        "commit": rng.choice((0, 0, 0.002, 0.01)),
    }.get(sign, 0.0)
    moment = Moment(sign, rng.uniform(0.02, 0.4), after_s)
    return Strike(fault, moment, hold_s=rng.uniform(0.1, 0.4), draw=rng.randrange(2**32))
