"""Case 56: a store that says SlowDown costs time, never a row and never an answer asked twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cases.command import DIED, INPUTS, OK, rowmill
from tests.cases.compare import differences, read_records
from tests.cases.endpoint import Serve
from tests.cases.on_s3 import Prefix, new_prefix, s3_job, whole_records
from tests.servers.faults import Asked, Fault, Faulty, Plan, faulty, first
from tests.servers.s3_server import S3Server

pytestmark = pytest.mark.slow
SOURCE = INPUTS / "56" / "input.jsonl"
EXPECTED = read_records(INPUTS / "56" / "expected.jsonl")
ROWS = 600


@pytest.fixture
def clean(s3_server: S3Server) -> Prefix:
    """A prefix as it is without faults."""
    return new_prefix(s3_server)


@contextmanager
def slowed(clean: Prefix, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """The store as started processes find it."""
    with ExitStack() as stack:
        faults = stack.enter_context(faulty(clean.server, plan))
        for name, value in faults.server.environment.items():
            monkeypatch.setenv(name, value)
        yield faults


def test_every_write_refused_twice(
    tmp_path: Path, serve: Serve, clean: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve()
    with slowed(clean, first(2, "slow down", "PUT"), monkeypatch) as faults:
        sets = {"run.task_rows": 40}

        finished = rowmill("run", s3_job(SOURCE, clean, endpoint=endpoint, sets=sets))

    assert finished.code == OK, finished.stderr
    records = whole_records(finished, clean, tmp_path / "out", ROWS)
    assert differences(EXPECTED, records) == []
    assert endpoint.hits == ROWS
    writes = [asked for asked in faults.asked if asked.method == "PUT"]
    commits = {asked.path for asked in writes if "/commits/" in asked.path}
    assert len(commits) == ROWS // 40
    for path in commits:
        tries = [asked.at for asked in writes if asked.path == path]
        assert len(tries) == 3
        assert tries[2] - tries[0] >= 0.3
    times = [asked.at for asked in writes]
    assert max(sum(begin <= at < begin + 1 for at in times) for begin in times) <= 50


def test_many_objects_of_the_input_each_refused_twice(
    tmp_path: Path, serve: Serve, clean: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve()
    lines = SOURCE.read_bytes().splitlines(keepends=True)
    for at in range(0, ROWS, 2):
        clean.put(f"in/{at:04d}.jsonl", b"".join(lines[at : at + 2]))
    with slowed(clean, first(2, "slow down", "GET", "HEAD"), monkeypatch) as faults:
        arguments = s3_job([f"{clean.url}/in"], clean.below("run"), endpoint=endpoint)

        finished = rowmill("run", arguments)

    assert finished.code == OK, finished.stderr
    records = whole_records(finished, clean.below("run"), tmp_path / "out", ROWS)
    assert differences(EXPECTED, records) == []
    assert endpoint.hits == ROWS
    assert len(faults.of("/in/0000.jsonl", "GET")) >= 3


def test_a_store_that_stays_slow_ends_the_run_in_time(
    serve: Serve, clean: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve()

    def plan(asked: Asked) -> Fault:
        is_segment = asked.method == "PUT" and "/segments/" in asked.path
        return "slow down" if is_segment else ""

    monkeypatch.setenv("ROWMILL_STORE_RETRY_S", "5")
    with slowed(clean, plan, monkeypatch):
        began = time.monotonic()
        finished = rowmill("run", s3_job(SOURCE, clean, endpoint=endpoint))
        seconds = time.monotonic() - began

    assert finished.code == DIED
    assert f"`{clean.url}/segments/" in finished.stderr
    assert "503 Service Unavailable, SlowDown; tried" in finished.stderr
    assert (
        "answers since the last checkpoint are not kept, they will be asked again"
        in finished.stderr
    )
    assert "run the same command again to resume" in finished.stderr
    assert seconds < 40
    assert clean.names("commits/") == []


def test_the_same_command_goes_on_once_the_store_is_well(
    tmp_path: Path, serve: Serve, clean: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve()

    def plan(asked: Asked) -> Fault:
        return "error" if asked.method == "PUT" and "/commits/0000007" in asked.path else ""

    monkeypatch.setenv("ROWMILL_STORE_RETRY_S", "2")
    arguments = s3_job(SOURCE, clean, endpoint=endpoint, sets={"run.task_rows": 20})
    with slowed(clean, plan, monkeypatch):
        assert rowmill("run", arguments).code == DIED
    kept = sum(json.loads(clean.get(name))["num_rows"] for name in clean.names("commits/"))
    assert 0 < kept < ROWS
    monkeypatch.setenv("AWS_ENDPOINT_URL", clean.server.endpoint)
    hits = endpoint.hits

    finished = rowmill("run", arguments)

    records = whole_records(finished, clean, tmp_path / "out", ROWS)
    assert differences(EXPECTED, records) == []
    assert endpoint.hits - hits <= ROWS - kept
