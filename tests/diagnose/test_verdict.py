"""Samples as they come in runs of each kind -> the station that is named. Real runs are in tests/telemetry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rowmill.diagnose import STATIONS, verdict
from rowmill.diagnose.rules import LEAST_S
from rowmill.events import Began, EngineReady, Verdict
from rowmill.telemetry import GpuUse, Sample, Stage

SECONDS = 60


def said(
    named: str = "vllm", gpu: dict[str, float] | None = None, **end: Any
) -> tuple[Verdict, list[tuple[float, Sample]]]:
    """The verdict on a steady run whose sums grow evenly to those of `end`."""
    ends: dict[str, Any] = {
        "rows_fed": 6000,
        "rows_answered": 6000,
        "active_s": SECONDS,
        "seconds": SECONDS,
        "row_s": 256.0 * SECONDS,
        "seats": 256,
        "prompt_tokens": 600_000,
        "output_tokens": 600_000,
        "cpu_s": {"rowmill": 6.0, "rowmill/read": 1.0, "engine": 20.0, "engine core": 30.0},
        "stages": {
            "measure": Stage(1.0, 2.0, 50.0),
            "feed": Stage(1.0, 0.0, 50.0),
            "write": Stage(1.0, 59.0),
        },
        "engine": {"running": 250, "waiting": 100, "kv_use": 0.6, "steps": 3000},
        **end,
    }
    samples = []
    for second in range(1, SECONDS + 1):
        share = second / SECONDS
        fields = {name: grown(value, share) for name, value in ends.items()}
        fields["engine"] = {
            name: value * share if name in ("steps", "preemptions") else value
            for name, value in ends["engine"].items()
        }
        sample = Sample(
            **{**fields, "seats": ends["seats"], "in_flight": ends["row_s"] / SECONDS},
            gpus=[GpuUse(index=0, **gpu)] if gpu else [],  # type: ignore[arg-type]
        )
        samples.append((float(second), sample))
    ready = EngineReady(
        name=named, about="", start_s=1, seats=ends["seats"], step_tokens=8192, kv_tokens=10**6
    )
    began = Began(time="", host="", pid=1, cores=8, memory_bytes=1, version="")
    found = verdict(samples, engine=ready, began=began)
    assert found is not None
    return found, samples


def grown(value: Any, share: float) -> Any:
    if isinstance(value, dict):
        return {name: grown(one, share) for name, one in value.items()}
    if isinstance(value, Stage):
        return Stage(*(part * share for part in msgspec.structs.astuple(value)))
    return int(value * share) if isinstance(value, int) else value * share


READS = {"measure": Stage(5.0, 50.0, 0.0), "feed": Stage(1.0, 50.0, 0.0)}
TOKENISES = {"measure": Stage(50.0, 2.0, 0.0), "feed": Stage(1.0, 50.0, 0.0)}
PLANS = {"measure": Stage(5.0, 2.0), "plan": Stage(50.0), "feed": Stage(1.0, 50.0, 0.0)}
WRITES = {"measure": Stage(1.0, 1.0, 50.0), "feed": Stage(), "write": Stage(58.0, 2.0)}
STUCK = {"write": Stage(59.0, 1.0)}


@pytest.mark.parametrize(
    ("station", "end"),
    [
        ("reading", {"empty_s": 40.0, "stages": READS}),
        ("tokenising", {"empty_s": 40.0, "stages": TOKENISES}),
        ("planning", {"empty_s": 40.0, "stages": PLANS}),
        ("tokenising", {"active_s": 10, "stages": TOKENISES}),
        ("tail", {"tail_empty_s": 30.0, "tail_s": 40.0}),
        ("writing", {"written_row_s": 200.0 * SECONDS, "stages": WRITES}),
        (
            "writing",
            {"empty_s": 24.0, "written_row_s": 80.0 * SECONDS, "stages": READS | STUCK},
        ),  # a disk that holds back reading, too
        ("reading", {"empty_s": 24.0, "stages": READS | STUCK}),  # what is answered is written
        ("KV full", {"engine": {"running": 100, "waiting": 9, "kv_use": 0.97, "steps": 3000}}),
        (
            "KV full",
            {
                "engine": {
                    "running": 250,
                    "waiting": 9,
                    "kv_use": 0.9,
                    "steps": 9,
                    "preemptions": 900,
                }
            },
        ),
        (
            "KV full",
            {"empty_s": 40.0, "stages": {"feed": Stage(1.0, 0.0, 50.0)}},
        ),  # kv_use is 0.6
        (
            "seats",
            {
                "seats": 8,
                "engine": {"running": 7.9, "waiting": 40, "kv_use": 0.02, "steps": 100_000},
            },
        ),
    ],
)
def test_what_rows_wait_for_is_named(station: str, end: dict[str, Any]) -> None:
    found, _ = said(gpu={"use": 0.95, "memory_use": 0.4}, **end)

    assert station == found.station
    assert found.remedy
    assert not found.is_well


def test_small_full_steps_are_the_token_budget_and_large_ones_are_not() -> None:
    busy = {"running": 40, "waiting": 300, "kv_use": 0.02, "steps": 3000}
    _, samples = said(engine=busy)

    def station(step_tokens: int) -> str:
        ready = EngineReady(
            name="vllm", about="", start_s=1, seats=256, step_tokens=step_tokens
        )
        found = verdict(samples, engine=ready)
        assert found is not None
        return found.station

    assert "token budget" == station(512)
    assert "token budget" != station(8192)


@pytest.mark.parametrize(
    ("station", "gpu"),
    [
        ("engine CPU", {"use": 0.4, "memory_use": 0.2}),
        ("engine CPU", {"use": 0.99, "tensor_use": 0.1, "bandwidth_use": 0.2}),
        ("GPU compute", {"use": 0.99, "tensor_use": 0.6, "bandwidth_use": 0.3}),
        ("GPU bandwidth", {"use": 0.99, "tensor_use": 0.2, "bandwidth_use": 0.8}),
        ("GPU compute", {"use": 0.99, "memory_use": 0.3}),
        ("GPU bandwidth", {"use": 0.99, "memory_use": 0.8}),
    ],
)
def test_what_of_a_gpu_is_used_up_is_named(station: str, gpu: dict[str, float]) -> None:
    found, _ = said(gpu=gpu)

    assert station == found.station


def test_engines_without_a_gpu_are_told_apart() -> None:
    assert "CPU compute" == said(named="llamacpp", cpu_s={"engine": 400.0})[0].station
    assert "engine CPU" == said(named="echo", cpu_s={"engine": 58.0})[0].station
    assert "engine" == said(named="echo", cpu_s={"engine": 5.0})[0].station
    assert "endpoint" == said(named="http", cpu_s={"engine": 5.0})[0].station
    assert (
        "rowmill" == said(named="echo", cpu_s={"engine": 5.0, "rowmill/feed": 58.0})[0].station
    )


def test_an_endpoint_that_the_jobs_own_seats_hold_is_told_apart() -> None:
    slow: dict[str, Any] = {"named": "http", "cpu_s": {"engine": 5.0}}
    held, _ = said(engine={"running": 256}, **slow)
    refusing, _ = said(engine={"running": 256, "retries": 600}, **slow)
    found, _ = said(engine={"running": 256, "seats": 320}, **slow)
    idle, _ = said(engine={"running": 20}, row_s=20.0 * SECONDS, **slow)

    assert {one.station for one in (held, refusing, found, idle)} == {"endpoint"}
    assert "all that `engine.seats` (256) lets it have, and it refuses none" in held.says
    assert "leave `engine.seats` out" in held.remedy
    for other in (refusing, found, idle):
        assert "lets it have" not in other.says


def test_writing_that_keeps_no_row_from_the_engine_is_not_accused() -> None:
    """Its thread is busy, but the engine's seats are taken: answers come as fast as they go."""
    found, _ = said(stages=WRITES, written_row_s=5.0 * SECONDS)

    assert "writing" != found.station


def test_short_runs_are_told_nothing_and_runs_without_a_row_have_no_verdict() -> None:
    short, _ = said(seconds=LEAST_S / 2, active_s=LEAST_S / 2)

    assert "" == short.station
    assert "too short" in short.line()
    assert verdict([]) is None
    assert verdict([(1.0, Sample())]) is None


def test_stations_of_the_page_are_those_of_the_code() -> None:
    from pathlib import Path

    page = Path("docs/verdicts.md").read_text("utf-8")

    assert [station for station in STATIONS if f"| {station} |" not in page] == []


@pytest.mark.parametrize("output_tokens", [600_000, 0])
def test_only_who_writes_answers_is_told_to_shorten_them(output_tokens: int) -> None:
    tail, _ = said(tail_empty_s=30.0, tail_s=40.0, output_tokens=output_tokens)
    busy, _ = said(
        gpu={"use": 0.99, "tensor_use": 0.7, "bandwidth_use": 0.3}, output_tokens=output_tokens
    )

    assert ("tail", "GPU compute") == (tail.station, busy.station)
    assert ("sampling.max_tokens" in tail.remedy) == bool(output_tokens)
    assert ("share beginnings" in busy.remedy) == bool(output_tokens)
