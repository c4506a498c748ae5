"""A cluster's ordinary days: it grows, is asked to stop, is asked twice, is not there."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cases.command import (
    OK,
    REFUSED,
    check_refused,
    check_whole,
    job,
    kill,
    rowmill,
    start,
)
from tests.cases.conftest import serve as serve
from tests.cases.endpoint import Endpoint, Serve, wait_until
from tests.executors.ray.nodes import Cluster, descendants, free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(280)]

NUM_ROWS = 600
SETS = {"run.task_rows": 20, "run.lease_s": 3, "plan.window_rows": 10}
DRAINED = 143
LIMIT_S = 200.0


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "rows.jsonl"
    path.write_text("".join(f'{{"id": {i}, "prompt": "row {i}"}}\n' for i in range(NUM_ROWS)))
    return path


def on_ray(source: Path, out: Path, endpoint: Endpoint, head: Cluster) -> list[str]:
    ray = ["--executor", "ray", "--address", head.address]
    return job(source, out, *ray, endpoint=endpoint, sets=SETS)


def workers_of(out: Path) -> set[str]:
    files = (out / "commits").glob("*.json")
    return {json.loads(file.read_bytes())["worker"] for file in files}


def test_a_node_that_joins_gets_a_worker_and_leaves_none_idle(
    tmp_path: Path, source: Path, head: Cluster, serve: Serve
) -> None:
    endpoint, out = serve(delay_s=0.4), tmp_path / "out"
    arguments = on_ray(source, out, endpoint, head)
    process = start(arguments, tmp_path / "words")
    endpoint.wait_hits(20, process)

    node = head.add(cpus=1)

    assert process.wait(LIMIT_S) == OK, (tmp_path / "words").read_text()
    node.kill()
    assert len(workers_of(out)) == 2
    assert "2 workers" in (tmp_path / "words").read_text()
    check_whole(rowmill("run", arguments), out, NUM_ROWS)
    assert endpoint.hits == NUM_ROWS


def test_sigterm_drains_all_workers_and_a_run_of_one_machine_goes_on(
    tmp_path: Path, source: Path, head: Cluster, serve: Serve
) -> None:
    endpoint, out = serve(delay_s=0.3), tmp_path / "out"
    process = start(on_ray(source, out, endpoint, head), tmp_path / "words")
    endpoint.wait_hits(40, process)

    second = rowmill("run", on_ray(source, out, endpoint, head))
    process.send_signal(signal.SIGTERM)

    assert process.wait(LIMIT_S) == DRAINED, (tmp_path / "words").read_text()
    assert f"process {process.pid} on `" in check_refused(second)
    assert "SIGTERM received" in (tmp_path / "words").read_text()
    alone = job(source, out, endpoint=endpoint, sets=SETS)
    check_whole(rowmill("run", alone, limit_s=LIMIT_S), out, NUM_ROWS)
    assert endpoint.hits == NUM_ROWS


def test_without_an_address_a_cluster_of_this_machine_lives_as_long_as_the_run(
    tmp_path: Path, source: Path, head: Cluster
) -> None:
    out = tmp_path / "out"
    arguments = job(source, out, "--executor", "ray", sets={"run.task_rows": 100})
    process = start(arguments, tmp_path / "words")
    seen: set[int] = set()

    def is_over() -> bool:
        seen.update(descendants(process.pid))
        return process.poll() is not None

    wait_until(is_over, "the run", patience_s=LIMIT_S)
    kill(process)

    assert process.returncode == OK, (tmp_path / "words").read_text()
    assert len(seen) > 5
    wait_until(lambda: not any(is_alive(pid) for pid in seen), "the end of its processes")
    check_whole(rowmill("run", job(source, out, sets={"run.task_rows": 100})), out, NUM_ROWS)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"


def test_a_cluster_that_is_not_there_is_told_and_nothing_is_left(
    tmp_path: Path, source: Path, head: Cluster
) -> None:
    out, address = tmp_path / "out", f"127.0.0.1:{free_port()}"

    finished = rowmill(
        "run", job(source, out, "--executor", "ray", "--address", address), limit_s=LIMIT_S
    )

    assert finished.code == REFUSED
    assert f"no Ray cluster at `ray.address` = `{address}`" in check_refused(finished)
    assert not out.exists()
