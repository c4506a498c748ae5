"""Case 51: seconds of 500, cut answers and a restart cost no row."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, check_whole, job, kill, run, start
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Endpoint, Serve, wait_until

CASE = INPUTS / "51"
EXPECTED = read_records(CASE / "expected.jsonl")
SETS = {"engine.seats": 8, "engine.max_attempts": 8, "engine.back_off_s": 0.2}

pytestmark = pytest.mark.slow


def tries(endpoint: Endpoint) -> Counter[str]:
    return Counter(json.loads(request["body"])["prompt"] for request in endpoint.requests())


def test_all_rows_are_answered_after_seconds_of_500(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(plan=CASE / "plan.json", delay_s=0.05), tmp_path / "out"

    finished = run(CASE / "input.jsonl", out, endpoint=endpoint, sets=SETS)
    records = check_whole(finished, out, 81)

    assert differences(EXPECTED, records) == []
    assert finished.code == SOME_FAILED
    (failed,) = [record for record in records if record["rowmill_error"]]
    assert "500" in failed["rowmill_error"]
    assert "8 attempts" in failed["rowmill_error"]
    seen = tries(endpoint)
    assert 8 == seen[failed["prompt"]] == max(seen.values())
    assert all(seen[record["prompt"]] == record["rowmill_attempts"] for record in records)
    causes = finished.told["retries"]
    assert {"HTTP 500", "cut or unreadable answer"} <= set(causes)
    assert sum(causes.values()) == sum(seen.values()) - 81


def test_a_restart_in_the_middle_costs_no_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"id": {i}, "prompt": "row {i}"}}\n' for i in range(200)))
    first = Endpoint(tmp_path / "first", delay_s=0.05)
    process = start(job(source, out, endpoint=first, sets=SETS), tmp_path / "words")
    try:
        with closing(first):
            first.wait_hits(60, process)
        wait_until(
            lambda: b"is down" in (tmp_path / "words").read_bytes(), "the outage is told"
        )
        with closing(Endpoint(tmp_path / "second", delay_s=0.05, port=first.port)) as second:
            code = process.wait(60)
            answered = second.stats["status"]["200"]
    finally:
        kill(process)

    words = (tmp_path / "words").read_text()
    assert code == 0, words
    assert "is back" in words
    assert answered >= 100
    assert 200 == json.loads((out / "done.json").read_bytes())["counts"]["ok"]
