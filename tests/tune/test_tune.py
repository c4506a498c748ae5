"""`tune` on the echo engine: rows of trials are results of the job, once; what would be other answers leaves none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.events import Planned
from rowmill.executors.local import run
from rowmill.tune import Ask, Patience, dry_run, tune

ROWS = 4000
ASK = Ask(patience=Patience(most_s=1.0, least_s=0.2))
slow = pytest.mark.slow


def job(tmp_path: Path, **engine: Any) -> Job:
    source = tmp_path / "rows.jsonl"
    if not source.exists():
        rows = [{"prompt": f"{i} {'word ' * (i % 17)}"} for i in range(ROWS)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {
        "name": "echo",
        "seats": 16,
        "delay_s": 0.02,
        "log": str(tmp_path / "starts"),
        **engine,
    }
    return Job.model_validate(
        {
            "source": str(source),
            "output": str(tmp_path / "out"),
            "engine": own,
            "raw": True,
            "sampling": {"temperature": 0, "max_tokens": 64},
            "run": {"task_rows": 500, "gpu_hour_price": 36.0},
        }
    )


def starts(tmp_path: Path) -> Counter[str]:
    return Counter((tmp_path / "starts").read_text().split())


@slow
def test_rows_of_trials_are_results_and_are_not_asked_again(tmp_path: Path) -> None:
    mine = job(tmp_path)

    found = tune(mine, ASK)

    assert 0 < found.rows_kept == starts(tmp_path).total() < ROWS
    assert found.rows_dropped == 0
    assert found.starts == 1
    assert {one.in_flight for one in found.tried} <= {16, 8, 4}
    told: list[object] = []
    summary = run(mine, listen=told.append)
    assert (summary.total, summary.ok) == (ROWS, ROWS)
    assert set(starts(tmp_path).values()) == {1}
    assert len(starts(tmp_path)) == ROWS
    (planned,) = [event for event in told if isinstance(event, Planned)]
    assert planned.resumed == found.rows_kept
    assert any(line.startswith("measured: ") and "costs" in line for line in planned.forecast)
    assert summary.forecast is not None


@slow
def test_what_was_foretold_is_for_the_rows_that_are_left(tmp_path: Path) -> None:
    found = tune(job(tmp_path), ASK)

    assert found.probe is not None
    assert found.estimate is not None
    assert found.probe.rows == ROWS - found.rows_kept
    assert found.estimate.low_s < found.estimate.seconds < found.estimate.high_s
    assert found.estimate.cost == pytest.approx(36.0 * found.estimate.gpu_hours)
    # An answer of the echo is its prompt: the work that is left is known to the token.
    assert found.probe.answer_tokens == pytest.approx(found.probe.prompt_tokens, rel=0.25)
    lines = "\n".join(found.lines())
    assert f"{found.probe.rows:,} rows in" in lines
    assert "rows of trials are results of the job" in lines


@slow
def test_a_trial_that_answers_otherwise_leaves_no_row(tmp_path: Path) -> None:
    mine = job(tmp_path)

    # A longer context makes nothing faster, so the job stays what it is.
    found = tune(mine, Ask(patience=ASK.patience, also=(("context", 9999),)))

    assert found.rows_dropped > 0
    assert not found.changes_answers
    asked = starts(tmp_path).total()
    assert asked == found.rows_kept + found.rows_dropped
    summary = run(mine)
    assert summary.ok == ROWS
    assert starts(tmp_path).total() == ROWS + found.rows_dropped


@slow
def test_a_setting_that_changes_answers_wins_only_where_it_was_asked_for(
    tmp_path: Path,
) -> None:
    # The engine's own time is most of it, also on a busy machine.
    mine = job(tmp_path, delay_s=0.06)
    longer = [{"contains": "", "times": 5}]

    found = tune(mine, Ask(patience=ASK.patience, also=(("longer", longer),)))

    # Five times the tokens in the same time: the best there is, and the rows of the others are none of the run.
    assert found.changes_answers
    assert found.chosen["longer"][0] == longer
    assert found.rows_dropped > 0
    with pytest.raises(ConfigError, match=r"engine\.longer"):
        run(mine)
    summary = run(job(tmp_path, delay_s=0.06, longer=longer))
    assert summary.ok == ROWS
    assert starts(tmp_path).total() == ROWS + found.rows_dropped


def test_a_dry_run_starts_and_writes_nothing(tmp_path: Path) -> None:
    found = dry_run(job(tmp_path), Ask(also=(("context", 9999),)))

    assert [one.changes for one in found.tried] == [{}, {"context": 9999}]
    assert "first, with 16, 8, 4 rows in flight" in found.tried[0].verdict
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


@pytest.mark.parametrize("also", [("nope", 1), ("context", -3), ("seats", -1)])
def test_what_no_engine_starts_with_is_refused_before_a_trial(
    tmp_path: Path, also: tuple[str, int]
) -> None:
    for command in (tune, dry_run):
        with pytest.raises(ConfigError, match=also[0]):
            command(job(tmp_path), Ask(also=(also,)))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        tune(job(tmp_path, delay_s=-1), ASK)

    assert not (tmp_path / "out").exists()


@slow
def test_a_run_that_lies_there_is_gone_on_with(tmp_path: Path) -> None:
    mine = job(tmp_path)
    tune(mine, ASK)

    again = tune(mine, ASK)

    assert again.rows_kept > 0
    assert set(starts(tmp_path).values()) == {1}
    with pytest.raises(ConfigError, match="take another `-o`"):
        tune(mine, Ask(also=(("context", 9999),)))


def test_a_run_that_is_done_has_nothing_to_tune(tmp_path: Path) -> None:
    mine = job(tmp_path, delay_s=0)
    run(mine)

    found = tune(mine, ASK)

    assert found.tried == []
    assert "no row is left" in found.notes[0]


KINDS: dict[str, dict[str, Any]] = {
    "rerank": {"rows": lambda i: {"query": f"q {i}", "documents": [f"d {i}", f"{i} " * 9]}},
    "chunks": {
        "kind": "embed",
        "rows": lambda i: {"text": f"{i} {'word ' * (i % 40)}"},
        "validate": {"too_long": "chunk"},
    },
}


@slow
@pytest.mark.parametrize("name", KINDS)
def test_rows_of_trials_are_answered_as_those_of_a_run(tmp_path: Path, name: str) -> None:
    given = dict(KINDS[name])
    make = given.pop("rows")
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(make(i)) + "\n" for i in range(3000)))
    tree = {
        "kind": name,
        "source": str(source),
        "engine": {"name": "echo", "seats": 128, "delay_s": 0.2, "context": 128},
        **given,
    }
    alone, tuned = (
        Job.model_validate({**tree, "output": str(tmp_path / one)})
        for one in ("alone", "tuned")
    )

    found = tune(tuned, ASK)
    run(tuned)
    run(alone)

    assert found.rows_kept > 0
    told = [
        [
            {k: v for k, v in json.loads(line).items() if k != "rowmill_seconds"}
            for file in sorted((tmp_path / one / "results").glob("*.jsonl"))
            for line in file.read_bytes().splitlines()
        ]
        for one in ("alone", "tuned")
    ]
    assert len(told[0]) == 3000
    assert told[0] == told[1]
