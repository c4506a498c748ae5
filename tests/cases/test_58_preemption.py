"""Case 58: notice, then the end, five times over: each time in good time, with a status of its own, and nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    Arguments,
    check_whole,
    job,
    kill,
    rowmill,
    start,
)
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Endpoint, Serve

pytestmark = pytest.mark.slow

CASE = INPUTS / "58"
EXPECTED = read_records(CASE / "expected.jsonl")
ROWS, SEATS, PREEMPTIONS = 500, 8, 5
DRAINED = 143
GRACE_S = 10.0
OTHERS_PID_1 = ["unshare", "-pf", "--mount-proc", "--kill-child"]


def told_to_go(
    arguments: Arguments,
    endpoint: Endpoint,
    log: Path,
    *,
    hits: int,
    before: list[str],
    signals: int = 1,
) -> str:
    """Run until so many more requests came, give notice, and see that it ends by itself. Returns: its words."""
    hits += endpoint.hits
    process = start(arguments, log, before=before)
    try:
        endpoint.wait_hits(hits, process)
        asked_at = time.monotonic()
        for _ in range(signals):
            os.kill(_first_of(process) if before else process.pid, signal.SIGTERM)
            time.sleep(0.05)  # two signals at once are one
        code = process.wait(GRACE_S)
    finally:
        kill(process)
    assert time.monotonic() - asked_at < GRACE_S
    words = log.read_text()
    assert code == DRAINED, words
    asked = endpoint.hits
    time.sleep(0.2)
    assert endpoint.hits == asked
    return words


def _first_of(process: subprocess.Popen[bytes]) -> int:
    """The process that is number 1 in its own world."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


@pytest.fixture(params=["a process", "number 1"])
def before(request: pytest.FixtureRequest) -> list[str]:
    """Words before the command."""
    if request.param == "a process":
        return []
    done = subprocess.run([*OTHERS_PID_1, "true"], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED as number 1: {done.stderr.decode().strip()}")
    return OTHERS_PID_1


def test_five_preemptions_end_with_every_row_once(
    tmp_path: Path, serve: Serve, before: list[str]
) -> None:
    endpoint, out = serve(delay_s=0.3), tmp_path / "out"
    arguments = job(CASE / "input.jsonl", out, endpoint=endpoint)
    arguments += ["--set", f"engine.seats={SEATS}"]
    for number in range(1, PREEMPTIONS + 1):
        log = tmp_path / f"log-{number}"
        words = told_to_go(arguments, endpoint, log, hits=60, before=before)
        assert "SIGTERM received" in words
        assert "run the same command again" in words

    finished = rowmill("run", arguments)

    assert finished.code == OK
    assert differences(EXPECTED, check_whole(finished, out, ROWS)) == []
    assert endpoint.hits <= ROWS + PREEMPTIONS * SEATS


def test_a_second_notice_ends_at_once_and_nothing_is_torn(tmp_path: Path, serve: Serve) -> None:
    endpoint, out = serve(delay_s=0.5), tmp_path / "out"
    arguments = job(CASE / "input.jsonl", out, endpoint=endpoint)
    told_to_go(arguments, endpoint, tmp_path / "log", hits=60, before=[], signals=2)

    finished = rowmill("run", arguments)

    assert differences(EXPECTED, check_whole(finished, out, ROWS)) == []
    assert endpoint.hits <= ROWS + 2 * 16
