"""Nodes and drivers that are killed in the middle of a run: complete, each row once."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.cases.command import OK, Arguments, check_whole, job, kill, rowmill, start
from tests.cases.conftest import serve as serve
from tests.cases.endpoint import Endpoint, Serve, wait_until
from tests.executors.ray.nodes import Cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(280)]

NUM_ROWS = 1200
TASK_ROWS = 40
MOST_REPEATED = 150
"""Rows in flight at two workers, and those answered in the second before outcomes are handed to the disk."""
LIMIT_S = 200.0
SETS = {
    "run.task_rows": TASK_ROWS,
    "run.lease_s": 3,
    "plan.window_rows": 20,
    "ray.workers": 2,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that each say their number."""
    path = tmp_path_factory.mktemp("input") / "rows.jsonl"
    path.write_text("".join(f'{{"id": {i}, "prompt": "row {i}"}}\n' for i in range(NUM_ROWS)))
    return path


def on_ray(source: Path, out: Path, endpoint: Endpoint, head: Cluster) -> Arguments:
    """A run whose workers ask the endpoint, at most two at once."""
    ray = ["--executor", "ray", "--address", head.address]
    return job(source, out, *ray, endpoint=endpoint, sets=SETS)


def workers_of(out: Path) -> list[str]:
    """Who committed each task so far."""
    files = sorted((out / "commits").glob("*.json"))
    return [json.loads(file.read_bytes())["worker"] for file in files]


@pytest.fixture(scope="module")
def texts(source: Path, tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> list[str]:
    """What one worker on this machine makes of the rows."""
    out = tmp_path_factory.mktemp("alone") / "out"
    finished = rowmill("run", job(source, out, endpoint=serve(), sets={"engine.seats": 64}))
    return [str(record["rowmill_text"]) for record in check_whole(finished, out, NUM_ROWS)]


def check_rows(out: Path, arguments: Arguments, endpoint: Endpoint, texts: list[str]) -> None:
    """Every row once, in order, with its own answer; few were asked twice."""
    hits = endpoint.hits
    records = check_whole(rowmill("run", arguments), out, NUM_ROWS)
    assert texts == [record["rowmill_text"] for record in records]
    assert len(set(texts)) == NUM_ROWS
    assert NUM_ROWS <= hits <= NUM_ROWS + MOST_REPEATED
    assert endpoint.hits == hits


@pytest.mark.parametrize("number", range(10))
def test_a_node_is_killed(
    tmp_path: Path, source: Path, head: Cluster, serve: Serve, texts: list[str], number: int
) -> None:
    endpoint, out = serve(delay_s=0.05), tmp_path / "out"
    node = head.add(cpus=1)
    process = start(on_ray(source, out, endpoint, head), tmp_path / "words")
    try:
        wait_until(
            lambda: len(set(workers_of(out))) == 2 or process.poll() is not None, "two workers"
        )
        endpoint.wait_hits(
            endpoint.hits + random.Random(number).randrange(TASK_ROWS * 4), process
        )

        node.kill()

        assert process.wait(LIMIT_S) == OK, (tmp_path / "words").read_text()
    finally:
        kill(process)
        node.kill()
    words = (tmp_path / "words").read_text()
    assert "is lost, another takes its place" in words
    check_rows(out, job(source, out, endpoint=endpoint, sets=SETS), endpoint, texts)


@pytest.mark.parametrize("number", range(2))
def test_a_driver_is_killed_and_the_same_command_goes_on(
    tmp_path: Path, source: Path, head: Cluster, serve: Serve, texts: list[str], number: int
) -> None:
    endpoint, out = serve(delay_s=0.05), tmp_path / "out"
    process = start(on_ray(source, out, endpoint, head), tmp_path / "words")
    endpoint.wait_hits(random.Random(number).randrange(TASK_ROWS, NUM_ROWS // 2), process)

    kill(process)
    arguments = on_ray(source, out, endpoint, head)
    finished = rowmill("run", arguments, limit_s=LIMIT_S)

    assert finished.code == OK, finished.stderr
    check_rows(out, arguments, endpoint, texts)
