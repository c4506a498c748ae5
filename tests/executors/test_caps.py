"""Caps: what is reached is told with its numbers; time is given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rowmill.config import RunConfig
from rowmill.engines.ladder import Step
from rowmill.executors.caps import GIB, Caps, seconds_before
from rowmill.executors.steps import Steps
from rowmill.executors.stopping import Stop
from rowmill.journal import Counts, Paid
from rowmill.storage import LocalStorage


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def caps_of(tmp_path: Path, clock: Clock, **settings: object) -> tuple[Caps, Stop]:
    stop = Stop()
    config = RunConfig.model_validate(settings)
    return Caps(config, LocalStorage(str(tmp_path)), stop, clock=clock), stop


def look(caps: Caps) -> None:
    caps.check(Counts(), rejected=0, entered=0)


def test_hours_are_those_of_this_start(tmp_path: Path) -> None:
    clock = Clock()
    caps, stop = caps_of(tmp_path, clock, max_hours=1)
    clock.now = 3599.0
    look(caps)

    assert not stop

    clock.now = 3601.0
    look(caps)

    assert ("`run.max_hours` = 1 reached", 5) == (stop.reason, stop.exit_code)


def test_cost_counts_gpus_and_earlier_starts(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events/a-0.jsonl").write_text('{"at":1800.0,"event":"progress"}\n{"at":18')
    clock = Clock()
    caps, stop = caps_of(tmp_path, clock, max_cost=8, gpu_hour_price=2.0)
    caps.gpus = 4
    clock.now = 1799.0
    look(caps)

    assert 1800.0 == seconds_before(LocalStorage(str(tmp_path)))
    assert not stop
    assert caps.cost == pytest.approx(8, rel=1e-3)

    clock.now = 1801.0
    look(caps)

    assert "`run.max_cost` = 8 reached (4 x 2 an hour" in stop.reason


def test_a_cap_on_cost_without_a_price_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="gpu_hour_price"):
        RunConfig(max_cost=3)


def test_a_disk_that_fills_stops_the_run(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free / GIB
    clock = Clock()
    caps, stop = caps_of(tmp_path, clock, min_free_gib=free + 10)
    look(caps)
    clock.now = 2.0
    look(caps)

    assert "`run.min_free_gib`" in stop.reason
    assert 5 == stop.exit_code


def test_steps_down_outlive_the_process(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    steps = Steps(storage)
    steps.keep(Step("seats", None, 1024, 512))
    steps.keep(Step("enforce_eager", None, False, True))
    steps.keep(Step("seats", None, 512, 256))

    assert {"seats": 256, "enforce_eager": True} == {
        step.setting: step.after for step in Steps(storage).taken
    }

    (tmp_path / "plan/engine-steps.json").write_text("[{")

    assert [] == Steps(storage).taken


def test_tokens_of_an_endpoint_cost_what_it_asks(tmp_path: Path) -> None:
    stop = Stop()
    config = RunConfig(max_cost=5, prompt_million_price=1.0, output_million_price=4.0)
    before = Paid(prompt_tokens=1_000_000, output_tokens=500_000)
    caps = Caps(config, LocalStorage(str(tmp_path)), stop, before=before)

    assert caps.cost == pytest.approx(3.0)

    caps.check(Counts(prompt_tokens=900_000), rejected=0, entered=0)

    assert not stop

    more = Counts(prompt_tokens=1_000_000, output_tokens=250_000)
    caps.check(more, rejected=0, entered=0)

    assert caps.cost == pytest.approx(5.0)
    assert "`run.max_cost` = 5 reached (2,000,000 tokens in, 750,000 tokens out" in stop.reason


def test_tokens_have_a_cap_of_their_own(tmp_path: Path) -> None:
    stop = Stop()
    before = Paid(prompt_tokens=600, output_tokens=100)
    caps = Caps(
        RunConfig(max_total_tokens=1000), LocalStorage(str(tmp_path)), stop, before=before
    )
    caps.check(Counts(prompt_tokens=200, output_tokens=100), rejected=0, entered=0)

    assert "`run.max_total_tokens` = 1,000 reached (1,000" in stop.reason
    assert stop.exit_code == 5
