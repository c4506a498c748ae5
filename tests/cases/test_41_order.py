"""Case 41: answers come in any order; results stand in input order, also after a kill."""

from __future__ import annotations

import json
from pathlib import Path

from rowmill.report import status
from tests.cases.command import (
    INPUTS,
    OK,
    check_whole,
    job,
    kill,
    rowmill,
    run,
    start,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Endpoint, Serve, wait_until

CASE = INPUTS / "41"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
IDS = [f"o{n:02d}" for n in range(60)]


def test_results_stand_in_input_order_and_slow_rows_stop_no_other(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint = serve(plan=CASE / "plan.json")

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint)
    records = check_whole(finished, tmp_path / "out", 60)

    assert differences(EXPECTED, records) == []
    assert [record["id"] for record in records] == IDS
    requests = endpoint.requests()
    first_slow = next(r for r in requests if "slow item" in r["body"])
    assert requests[-1]["t"] < first_slow["t"] + first_slow["took"]
    assert all(record["rowmill_row"] for record in records)


def test_killed_and_resumed_run_has_the_same_order(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(plan=CASE / "plan.json")
    out, log = tmp_path / "out", tmp_path / "words"
    arguments = job(SOURCE, out, endpoint=endpoint)
    process = start(arguments, log)
    endpoint.wait_hits(30, process)
    kill(process)

    finished = rowmill("run", arguments)
    records = check_whole(finished, out, 60)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    assert [record["id"] for record in records] == IDS


def test_completion_order_pairs_each_row_with_its_own_answer(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint = serve(plan=CASE / "plan.json")

    finished = run(
        SOURCE, tmp_path / "out", endpoint=endpoint, sets={"output.order": "completion"}
    )
    records = check_whole(finished, tmp_path / "out", 60)

    assert differences(EXPECTED, records) == []
    slow = [record["id"] for record in records[-6:]]
    assert sorted(slow) == [f"o{n}0" for n in range(6)]


def test_fast_answers_are_on_the_disk_before_slow_ones_come(
    tmp_path: Path, serve: Serve
) -> None:
    plan = [{"contains": "slow item", "action": {"type": "hang", "s": 3600}}]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    endpoint: Endpoint = serve(plan=tmp_path / "plan.json")
    out = tmp_path / "out"
    process = start(job(SOURCE, out, endpoint=endpoint), tmp_path / "words")
    try:
        wait_until(lambda: num_ok(out) == 54 or process.poll() is not None, "54 fast rows")
        assert process.poll() is None
    finally:
        kill(process)


def num_ok(out: Path) -> int:
    """Answers on the disk of a run that is going on."""
    return status(str(out)).ok if (out / "run.json").exists() else 0
