"""A run says what it will take before it asks, and what came of that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowmill.config import EngineConfig, Job
from rowmill.engines import echo
from rowmill.events import Planned
from rowmill.executors.local import run
from rowmill.progress import summary_lines
from tests.test_prospect import model

ROWS = 60


def job(tmp_path: Path, gpu: str) -> Job:
    source = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"{i * 7919} is a number"} for i in range(ROWS)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = model(tmp_path / "model", "1.5b")
    return Job.model_validate(
        {
            "source": str(source),
            "output": str(tmp_path / "out"),
            "engine": {"name": "echo", "model": str(folder)},
            "plan": {"gpu": gpu},
            "run": {"gpu_hour_price": 3600.0},
            "sampling": {"temperature": 0, "max_tokens": 8},
        }
    )


def test_what_was_said_stands_beside_what_it_took(tmp_path: Path) -> None:
    told: list[object] = []
    summary = run(job(tmp_path, "H200"), listen=told.append)

    (planned,) = [event for event in told if isinstance(event, Planned)]
    (line,) = planned.forecast
    assert "on 1 x H200" in line
    assert "costs" in line
    assert any(line in text for text in planned.lines())
    assert summary.forecast is not None
    assert planned.said == summary.forecast
    assert summary.forecast.hit_rate <= summary.forecast.hit_rate_bound
    assert summary.forecast.low_s < summary.forecast.seconds < summary.forecast.high_s
    assert "of the speed that no schedule can beat" in "\n".join(summary_lines(summary))


def test_nothing_is_said_where_there_is_no_gpu(tmp_path: Path) -> None:
    told: list[object] = []
    summary = run(job(tmp_path, ""), listen=told.append)

    (planned,) = [event for event in told if isinstance(event, Planned)]
    assert planned.forecast == []
    assert planned.said is None
    assert summary.forecast is None
    assert "forecast" not in "\n".join(summary_lines(summary))


def test_it_is_ready_when_an_engine_that_starts_slowly_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at beside the start, once the first rows are there."""
    monkeypatch.setattr(echo, "_SLOW_S", 0.5)
    told: list[object] = []
    slow = job(tmp_path, "H200")
    engine = EngineConfig.model_validate({**slow.engine.model_dump(), "start_s": 1.0})
    slow = slow.model_copy(update={"engine": engine})
    run(slow, listen=told.append)

    (planned,) = [event for event in told if isinstance(event, Planned)]
    assert len(planned.forecast) == 1
