"""Replicas as one engine: each row once, work shared, the rows of a lost one given to the others."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.fleet import Fleet, _Load, cut_evenly, together
from rowmill.engines.protocol import Replica
from rowmill.outcomes import pack
from rowmill.rows import Limits, Outcome, Sampling
from rowmill.size.work import DECODE_WEIGHT, STEP_WEIGHT
from tests.engines.rows_of import byte_prompts

ROWS = 600


@contextmanager
def running(tmp_path: Path, *engines: dict[str, Any]) -> Iterator[Fleet]:
    replicas = [
        Replica(EngineConfig(name="echo", tokenizer="bytes", **options)) for options in engines
    ]
    fleet = Fleet(replicas, log=tmp_path / "engine.log", record=tmp_path / "engine.pid")
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.close()


def ask(fleet: Fleet, rows: int = ROWS, size: int = 50) -> None:
    for first in range(0, rows, size):
        texts = [f"row number {key}" for key in range(first, first + size)]
        fleet.submit(byte_prompts(texts, first_key=first))
    fleet.finish()


def collect(fleet: Fleet) -> list[Outcome]:
    return [outcome for batch in fleet.outcomes() for outcome in batch.unpack()]


def started(log: Path) -> Counter[int]:
    return Counter(map(int, log.read_bytes().split()))


def kill(fleet: Fleet, number: int) -> None:
    process = fleet._supervisors[number]._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def test_every_row_is_answered_once_and_each_replica_has_its_share(tmp_path: Path) -> None:
    logs = [tmp_path / f"started-{i}" for i in range(3)]
    with running(tmp_path, *[{"log": str(log), "seats": 8} for log in logs]) as fleet:
        ask(fleet)
        outcomes = collect(fleet)

    assert sorted(o.key for o in outcomes) == list(range(ROWS))
    assert all(o.text == f"row number {o.key}"[-16:] for o in outcomes)
    counts = [len(started(log)) for log in logs]
    assert sum(counts) == ROWS
    assert min(counts) > ROWS / 5


def test_rows_go_to_the_replica_that_is_planned_for_them(tmp_path: Path) -> None:
    logs = [tmp_path / f"started-{i}" for i in range(3)]
    with running(tmp_path, *[{"log": str(log), "seats": 8} for log in logs]) as fleet:
        prompts = byte_prompts([f"row number {key}" for key in range(ROWS)])
        prompts.replica_of = [key % 3 for key in range(ROWS)]
        for first in range(0, ROWS, 50):
            fleet.submit(prompts.slice(first, first + 50))
        fleet.finish()
        outcomes = collect(fleet)

    assert sorted(o.key for o in outcomes) == list(range(ROWS))
    assert [set(started(log)) for log in logs] == [set(range(k, ROWS, 3)) for k in range(3)]


def test_long_answers_do_not_turn_planned_rows_away_from_free_seats(tmp_path: Path) -> None:
    logs = [tmp_path / f"started-{i}" for i in range(2)]
    with running(tmp_path, *[{"log": str(log), "seats": 64} for log in logs]) as fleet:
        exact = [Sampling(ignore_eos=True)]
        prompts = byte_prompts([f"row number {key}" for key in range(60)], sampling=exact)
        prompts.replica_of = [key % 2 for key in range(60)]
        # The first replica is to make a thousand steps, from its first row on.
        prompts.max_tokens = [4 if key % 2 else 1000 for key in range(60)]
        for first in range(0, 60, 6):
            fleet.submit(prompts.slice(first, first + 6))
        fleet.finish()
        collect(fleet)

    assert [set(started(log)) for log in logs] == [set(range(k, 60, 2)) for k in range(2)]


def test_rows_that_nobody_planned_for_go_where_no_long_answer_is(tmp_path: Path) -> None:
    logs = [tmp_path / f"started-{i}" for i in range(2)]
    slow = {"delay_s": 0.5, "seats": 64}
    with running(tmp_path, *[{**slow, "log": str(log)} for log in logs]) as fleet:
        exact = [Sampling(ignore_eos=True)]
        long = byte_prompts(["a long one"], max_tokens=1000, sampling=exact)
        long.replica_of = [1]
        fleet.submit(long)
        for key in range(1, 9):
            fleet.submit(byte_prompts(["short"], first_key=key, max_tokens=4, sampling=exact))
        fleet.finish()
        collect(fleet)

    assert [set(started(log)) for log in logs] == [set(range(1, 9)), {0}]


def test_rows_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    load = _Load()
    long = byte_prompts(["a long one"])
    load.add(long, [(10, 5000.0)])
    for key in range(1, 50_001):
        load.add(byte_prompts(["short"], first_key=key), [(5, 4.0)])
        load.settle(pack([Outcome(key, "ok")]))
        load.cost(64)

    # The long one is never gone, so that no short one is ever the longest.
    assert len(load._longest) < 5000
    assert load.cost(64) == 10 + DECODE_WEIGHT * 5000 + STEP_WEIGHT * 5000


def test_a_replica_with_too_much_before_it_is_spared(tmp_path: Path) -> None:
    logs = [tmp_path / f"started-{i}" for i in range(2)]
    with running(tmp_path, *[{"log": str(log), "seats": 8} for log in logs]) as fleet:
        prompts = byte_prompts([f"row number {key}" for key in range(ROWS)])
        prompts.replica_of = [0] * ROWS
        for first in range(0, ROWS, 50):
            fleet.submit(prompts.slice(first, first + 50))
        fleet.finish()
        outcomes = collect(fleet)

    assert sorted(o.key for o in outcomes) == list(range(ROWS))
    assert all(started(log).total() > ROWS / 5 for log in logs)


def test_no_more_rows_than_asked_for_are_at_work(tmp_path: Path) -> None:
    slow = {"delay_s": 0.1, "seats": 8}
    with running(tmp_path, slow, slow) as fleet:
        fleet.hold(4)
        began = time.monotonic()
        ask(fleet, rows=40, size=20)
        outcomes = collect(fleet)
        held_s = time.monotonic() - began

    assert 40 == len(outcomes)
    # Two each at a time: ten rounds, where eight each would be three.
    assert held_s > 0.9


def test_rows_are_held_back_after_a_death_as_before_it(tmp_path: Path) -> None:
    with running(tmp_path, {"delay_s": 0.4, "seats": 8}) as fleet:
        fleet.hold(1)
        kill(fleet, 0)
        began = time.monotonic()
        ask(fleet, rows=8, size=8)
        outcomes = collect(fleet)

    assert 8 == len(outcomes)
    # One by one: eight at a time would take one round, and the start.
    assert time.monotonic() - began > 8 * 0.4


def test_a_killed_replica_starts_again_and_no_row_is_lost(tmp_path: Path) -> None:
    with running(tmp_path, *[{"delay_s": 0.2, "seats": 100}] * 2) as fleet:
        ask(fleet)
        threading.Timer(0.3, kill, (fleet, 1)).start()
        outcomes = collect(fleet)

    assert sorted(o.key for o in outcomes) == list(range(ROWS))
    assert fleet.deaths == 1


def test_rows_of_a_replica_that_cannot_start_again_go_to_the_others(tmp_path: Path) -> None:
    good = {"delay_s": 0.2, "seats": 50}
    with running(tmp_path, good, good) as fleet:
        fleet._supervisors[1]._starter.start = _refuse_to_start  # type: ignore[method-assign]
        ask(fleet)
        threading.Timer(0.3, kill, (fleet, 1)).start()
        outcomes = collect(fleet)

    assert sorted(o.key for o in outcomes) == list(range(ROWS))


def _refuse_to_start(**_: object) -> Limits:
    raise errors.EngineDied(reason="no memory left on its GPU")


def test_a_run_ends_when_no_replica_is_left(tmp_path: Path) -> None:
    with running(tmp_path, *[{"delay_s": 0.2, "seats": 50}] * 2) as fleet:
        for one in fleet._supervisors:
            one._starter.start = _refuse_to_start  # type: ignore[method-assign]
        ask(fleet)
        threading.Timer(0.1, kill, (fleet, 0)).start()
        threading.Timer(0.2, kill, (fleet, 1)).start()

        with pytest.raises(errors.EngineDied, match="no memory"):
            collect(fleet)


def test_one_that_cannot_start_ends_the_others(tmp_path: Path) -> None:
    replicas = [
        Replica(EngineConfig(name="echo", tokenizer=name)) for name in ("bytes", "/nowhere")
    ]
    fleet = Fleet(replicas, log=tmp_path / "engine.log")

    with pytest.raises(errors.RowmillError):
        fleet.start()

    assert fleet._supervisors[0]._process is None


def test_limits_of_replicas_add_up() -> None:
    one = Limits(seats=8, kv_tokens=100, max_model_tokens=50)
    other = Limits(seats=4, kv_tokens=60, max_model_tokens=40)

    assert together([one, other]) == Limits(
        seats=12, replicas=2, kv_tokens=160, max_model_tokens=40
    )
    assert together([one, Limits(seats=1)]).kv_tokens == 0


@given(st.lists(st.integers(1, 3), min_size=0, max_size=60), st.integers(1, 5))
def test_pieces_are_the_rows_in_order(groups: list[int], number: int) -> None:
    texts = [
        f"group {g:03d} of rows, {i}" for g, size in enumerate(groups) for i in range(size)
    ]
    prompts = byte_prompts(texts)
    pieces = list(cut_evenly(prompts, number))

    assert [key for piece in pieces for key in piece.keys] == prompts.keys
    assert len(pieces) <= number + 1
    assert all(map(len, pieces))


def test_a_cut_keeps_rows_of_one_prefix_together() -> None:
    texts = [f"{'abcdefgh'[g]}{'=' * 50} {i}" for g in range(8) for i in range(10)]
    pieces = list(cut_evenly(byte_prompts(texts), 3))

    assert all(len(piece) % 10 == 0 for piece in pieces)
    assert len(pieces) == 3
