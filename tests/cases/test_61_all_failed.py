"""Case 61: a job whose rows all fail says so, in its exit code, its counts and its first words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.command import (
    INPUTS,
    SOME_FAILED,
    STOPPED,
    check_whole,
    exported,
    rowmill,
    run,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "61"
EXPECTED = read_records(CASE / "expected.jsonl")
SEATS = 16


def test_all_failed_is_told_apart_from_some_failed(tmp_path: Path, serve: Serve) -> None:
    finished = run(CASE / "input.jsonl", tmp_path / "out", endpoint=serve())
    records = check_whole(finished, tmp_path / "out", 9)

    assert differences(EXPECTED, records) == []
    assert finished.code == SOME_FAILED
    told = finished.told
    assert (told["ok"], told["error"]) == (0, 9)
    ((kind, sentence, rows),) = [(e["kind"], e["sentence"], e["rows"]) for e in told["errors"]]
    assert rows == 9
    assert "temperature" in sentence
    assert f"9 x {kind}: " in finished.stderr
    assert "results/part-00000.jsonl" in finished.stderr


@pytest.mark.parametrize(("after", "sets"), [(200, {}), (50, {"run.max_failed_after": 50})])
def test_a_job_that_nearly_all_fails_stops_early(
    tmp_path: Path, serve: Serve, after: int, sets: dict[str, object]
) -> None:
    endpoint, out = serve(), tmp_path / "out"

    finished = run(CASE / "big.jsonl", out, endpoint=endpoint, sets=sets)

    assert finished.code == STOPPED, finished.stderr
    assert endpoint.hits <= after + SEATS
    told = finished.told
    assert told["ok"] == 0
    assert told["not_done"] == 2000 - told["error"]
    assert "temperature" in told["stopped"]
    assert len(exported(out, tmp_path / "export.jsonl")) == told["error"]
    assert rowmill("status", [str(out)]).told["state"] == "interrupted"


@pytest.mark.slow
def test_without_a_limit_it_ends_with_an_error_for_every_row(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint = serve()
    sets = {"run.max_failed_share": 1}

    finished = run(CASE / "big.jsonl", tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 2000)

    assert all("temperature" in record["rowmill_error"] for record in records)
    assert finished.told["errors"][0]["rows"] == 2000


def test_a_few_failures_stop_nothing(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    rows = (f'{{"id": {i}, "prompt": {"null" if i % 3 == 0 else i}}}\n' for i in range(900))
    source.write_text("".join(rows))

    finished = run(source, tmp_path / "out", "--prompt", "Say {prompt}")
    check_whole(finished, tmp_path / "out", 900)

    assert finished.code == SOME_FAILED
    assert (finished.told["ok"], finished.told["error"]) == (600, 300)
    assert finished.told["stopped"] == ""
