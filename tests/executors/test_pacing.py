"""A run whose answers change says so; one whose rows only come in another order does not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rowmill.config import Job
from rowmill.events import Note, Progress
from rowmill.executors.local import run
from rowmill.report.status import status

ROWS, LATE = 2000, 1000


def job(tmp_path: Path, *, planted: bool, **plan: Any) -> Job:
    draw = random.Random(5)
    rows = [
        {
            "prompt": f"{i} {draw.choice(['apple', 'pear', 'fig']) * draw.randint(4, 30)}"
            f" {'LATE' if planted and i >= LATE else 'soon'}",
            "max_tokens": draw.choice([400, 800, 1600]),
        }
        for i in range(ROWS)
    ]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # At full speed a busy machine sees hundreds of answers at once, and with them the change only behind them.
    slow = 0.05 if planted else 0.0
    longer = [{"contains": "LATE", "times": 3}]
    engine = {"name": "echo", "seats": 32, "delay_s": slow, "longer": longer}
    return Job.model_validate(
        {
            "source": str(source),
            "output": str(tmp_path / "out"),
            "engine": engine,
            "raw": True,
            "sampling": {"temperature": 0},
            "plan": {"duplicates": "ask", **plan},
            "run": {"gpu_hour_price": 3600.0},
        }
    )


def drifts(told: list[object]) -> list[str]:
    texts = [event.text for event in told if isinstance(event, Note)]
    return [text for text in texts if text.startswith("drift: ")]


def test_answers_three_times_as_long_raise_an_alarm_within_five_percent_of_the_job(
    tmp_path: Path,
) -> None:
    told: list[object] = []

    summary = run(job(tmp_path, planted=True, order="file"), listen=told.append)

    (alarm, *_) = drifts(told)
    seen = int(alarm.partition("seen at ")[2].partition(" ")[0].replace(",", ""))
    assert LATE < seen <= LATE + ROWS // 20
    assert "3.0 times" in alarm or "2.9 times" in alarm
    assert summary.ok == ROWS
    events = "".join(path.read_text() for path in (tmp_path / "out" / "events").iterdir())
    assert alarm.partition(" of those")[0] in events


@pytest.mark.parametrize("order", ["file", "auto"])
def test_no_alarm_without_a_change(tmp_path: Path, order: str) -> None:
    """`auto` asks for the longest answers first here."""
    told: list[object] = []

    run(job(tmp_path, planted=False, order=order), listen=told.append)

    assert drifts(told) == []


@pytest.mark.slow
def test_what_is_left_and_what_it_costs_is_told_meanwhile(tmp_path: Path) -> None:
    told: list[object] = []
    slow = job(tmp_path, planted=False)
    engine = type(slow.engine).model_validate({**slow.engine.model_dump(), "delay_s": 0.08})

    run(slow.model_copy(update={"engine": engine}), listen=told.append)

    seen = [event for event in told if isinstance(event, Progress)]
    left = [event.work_left for event in seen]
    assert len(left) >= 3
    assert left == sorted(left, reverse=True)
    # Done and left together are the work of the job from the first word on: all of it was read by then.
    whole = [event.work_done + event.work_left for event in seen[1:]]
    assert max(whole) < 1.25 * min(whole)
    assert seen[-1].cost > seen[0].cost
    # The last sample is of the run's end, up to a second behind the last word of progress.
    end = status(str(tmp_path / "out")).cost
    assert seen[-1].cost <= end < seen[-1].cost + 2 * (seen[-1].cost - seen[-2].cost)
