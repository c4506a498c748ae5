"""Case 53: a seat that is free is taken at once; there are never more requests than seats."""

from __future__ import annotations

import resource
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cases.command import INPUTS, OK, check_whole, job, run, start
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve, wait_until
from tests.cases.memory import MIB, MemoryWatch

CASE = INPUTS / "53"
EXPECTED = read_records(CASE / "expected.jsonl")

pytestmark = pytest.mark.slow


def test_seats_are_refilled_one_by_one(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(plan=CASE / "plan.json"), tmp_path / "out"

    finished = run(CASE / "input.jsonl", out, endpoint=endpoint, sets={"engine.seats": 10})
    records = check_whole(finished, out, 100)

    assert (finished.code, differences(EXPECTED, records)) == (OK, [])
    assert endpoint.stats["max_inflight"] in (9, 10)
    times = sorted(request["t"] for request in endpoint.requests())
    # In lockstep nothing is asked for the two seconds that the slow row of each ten takes.
    assert max(later - earlier for earlier, later in pairwise(times)) < 1.5


@pytest.mark.timeout(300)
def test_fifty_thousand_rows_through_64_seats_and_256_files(
    tmp_path: Path, serve: Serve
) -> None:
    endpoint, out, rows = serve(is_logged=False), tmp_path / "out", 50_000
    source = tmp_path / "big.jsonl"
    source.write_text("".join(f'{{"id": "g{i}", "prompt": "g {i}"}}\n' for i in range(rows)))
    arguments = job(source, out, endpoint=endpoint, sets={"engine.seats": 64})
    limit = ["prlimit", "--nofile=256:256"]
    process = start(arguments, tmp_path / "words", before=limit)
    watch = MemoryWatch(process.pid)
    try:
        code = process.wait(280)
    finally:
        peak = watch.close()
        process.kill()

    assert code == OK, (tmp_path / "words").read_text()
    assert peak < 500 * MIB
    assert endpoint.stats["max_inflight"] <= 64
    assert endpoint.hits == rows
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 256


def test_an_interrupt_ends_it_soon_with_what_is_there(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(is_logged=False), tmp_path / "out"
    source = tmp_path / "big.jsonl"
    source.write_text("".join(f'{{"id": "g{i}", "prompt": "g {i}"}}\n' for i in range(50_000)))
    arguments = job(source, out, endpoint=endpoint, sets={"engine.seats": 64})
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(2000, process)
    process.send_signal(2)

    code = process.wait(20)

    assert code == 130
    hits = endpoint.hits
    wait_until(lambda: endpoint.hits == hits, "no further request")
    assert hits < 50_000
