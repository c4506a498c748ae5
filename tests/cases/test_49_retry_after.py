"""Case 49: a server's word when to come back is kept to, and waiting rows hold nobody up."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, OK, check_whole, run
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Endpoint, Serve

CASE = INPUTS / "49"
EXPECTED = read_records(CASE / "expected.jsonl")


def gaps(endpoint: Endpoint) -> dict[str, list[tuple[float, float]]]:
    """Kind of row -> (when it came back, how long after its first try)."""
    tries: dict[str, list[float]] = defaultdict(list)
    for request in endpoint.requests():
        tries[json.loads(request["body"])["prompt"]].append(request["t"])
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for prompt, times in tries.items():
        found[prompt.split()[0]].append((times[1], times[1] - times[0]))
    return found


@pytest.mark.slow
def test_no_row_comes_back_before_its_time(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(plan=CASE / "plan.json")
    sets = {"engine.seats": 10, "engine.max_attempts": 5}

    finished = run(CASE / "input.jsonl", tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 30)

    assert finished.code == OK
    assert differences(EXPECTED, records) == []
    found = gaps(endpoint)
    assert {"sec": 10, "date": 10, "junk": 10} == {kind: len(of) for kind, of in found.items()}
    for kind in ("sec", "date"):
        assert min(gap for _, gap in found[kind]) >= 2.0
        moments = sorted(moment for moment, _ in found[kind])
        assert moments[-1] - moments[0] > 0.05
    assert {"HTTP 429": 20, "HTTP 503": 10} == finished.told["retries"]
    assert endpoint.stats["max_inflight"] <= 10


def test_a_day_is_not_slept_through(tmp_path: Path, serve: Serve) -> None:
    action = {"type": "status", "code": 429, "headers": {"Retry-After": "86400"}}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"contains": "sec 0", "action": action}]))
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "a", "prompt": "sec 0"}\n{"id": "b", "prompt": "other"}\n')

    finished = run(source, tmp_path / "out", endpoint=serve(plan=plan))
    late, other = check_whole(finished, tmp_path / "out", 2)

    assert "86400 s" in late["rowmill_error"]
    assert (1, "ok") == (late["rowmill_attempts"], other["rowmill_status"])
