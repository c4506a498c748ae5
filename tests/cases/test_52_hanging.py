"""Case 52: a request that hangs ends by its own timer, and no other row by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, check_whole, run
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "52"
EXPECTED = read_records(CASE / "expected.jsonl")


@pytest.mark.slow
def test_hanging_rows_time_out_alone_in_a_run_of_many_time_outs(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint, out = serve(plan=CASE / "plan.json"), tmp_path / "out"
    sets = {"engine.seats": 4, "engine.timeout_s": 5, "engine.max_attempts": 2}

    finished = run(CASE / "input.jsonl", out, endpoint=endpoint, sets=sets)
    records = check_whole(finished, out, 40)

    assert finished.code == SOME_FAILED
    assert differences(EXPECTED, records) == []
    hung = [record for record in records if record["rowmill_error"]]
    assert ["h03", "h17"] == [record["id"] for record in hung]
    for record in hung:
        assert "5 s" in record["rowmill_error"]
        assert 2 == record["rowmill_attempts"]
    assert {"time-out": 3} == finished.told["retries"]
    # Four of ours, and the five that hung, which the endpoint holds for an hour.
    assert endpoint.stats["max_inflight"] <= 9
    assert "a request may take 5 s" in finished.stderr
    assert finished.stderr.count(" in flight") >= 2
