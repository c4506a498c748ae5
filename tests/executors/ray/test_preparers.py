"""Tasks are tokenised ahead on a real cluster, by processes that may be killed; the answers are the same."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rowmill import rundir
from tests.cases.command import OK, Arguments, check_whole, job, kill, rowmill, start
from tests.cases.endpoint import wait_until
from tests.executors.ray.nodes import Cluster, descendants

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(280)]

NUM_ROWS = 1500
LIMIT_S = 200.0
PREPARER = b"RayPreparer"
AHEAD = "rows came to their workers tokenised ahead"
GIVEN_UP = "nothing is tokenised ahead any more"
SETS = {
    "run.task_rows": 25,
    "run.lease_s": 3,
    "plan.window_rows": 25,
    "engine.seats": 4,
    "ray.workers": 1,
    "ray.cpus": 1,
    "engine.delay_s": 0.05,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "rows.jsonl"
    path.write_text(
        "".join(
            f'{{"id": {i}, "prompt": "row {i} {"of many " * (i % 9)}"}}\n'
            for i in range(NUM_ROWS)
        )
    )
    return path


@pytest.fixture(scope="module")
def plain(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What a worker of this machine makes of the rows."""
    out = tmp_path_factory.mktemp("alone") / "out"
    return answers(out, job(source, out))


def answers(out: Path, arguments: Arguments) -> list[object]:
    records = check_whole(rowmill("run", arguments), out, NUM_ROWS)
    return [(r["rowmill_text"], r["rowmill_prompt_tokens"]) for r in records]


def on_ray(source: Path, out: Path, head: Cluster, **sets: object) -> Arguments:
    ray = ["--executor", "ray", "--address", head.address]
    return job(source, out, *ray, sets={**SETS, **sets})


def preparers(root: int, *, title: bytes = PREPARER + b".prepare") -> list[int]:
    """Processes below `root` that tokenise, just now if it is not told otherwise."""
    found = []
    for pid in descendants(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title in words:
            found.append(pid)
    return found


def check_end(out: Path, words: str, plain: list[object], source: Path) -> int:
    """All is there, as without, and nothing is left in the way. Returns: rows that came tokenised."""
    assert not list((out / rundir.PREPARED).glob("**/*"))
    assert not list(out.rglob(".tmp*"))
    assert plain == answers(out, job(source, out))
    lines = [line for line in words.splitlines() if AHEAD in line]
    return sum(int(line.split()[0].replace(",", "")) for line in lines)


def test_rows_come_tokenised_and_answers_are_the_same(
    tmp_path: Path, source: Path, head: Cluster, plain: list[object]
) -> None:
    node, out = head.add(cpus=2), tmp_path / "out"
    process = start(on_ray(source, out, head, **{"ray.prepare": 1}), tmp_path / "words")
    try:
        assert process.wait(LIMIT_S) == OK, (tmp_path / "words").read_text()
    finally:
        kill(process)
        node.kill()

    rows = check_end(out, (tmp_path / "words").read_text(), plain, source)
    assert rows >= NUM_ROWS / 4  # most on an idle machine; on a busy one the worker overtakes


def test_processes_that_tokenise_are_killed_and_the_run_is_whole(
    tmp_path: Path, source: Path, head: Cluster, plain: list[object]
) -> None:
    node, out = head.add(cpus=2), tmp_path / "out"
    sets = {"ray.prepare": 1, "engine.delay_s": 0.2}
    process = start(on_ray(source, out, head, **sets), tmp_path / "words")
    killed: set[int] = set()

    def kill_one() -> bool:
        for pid in preparers(node.process.pid):
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        return len(killed) >= 2 or process.poll() is not None

    try:
        wait_until(kill_one, "two processes that tokenise", patience_s=LIMIT_S)
        assert process.wait(LIMIT_S) == OK, (tmp_path / "words").read_text()
    finally:
        kill(process)
        node.kill()

    assert len(killed) >= 2
    assert check_end(out, (tmp_path / "words").read_text(), plain, source) > 0


def test_where_they_are_lost_again_and_again_workers_do_it_all(
    tmp_path: Path, source: Path, head: Cluster, plain: list[object]
) -> None:
    node, out, words = head.add(cpus=2), tmp_path / "out", tmp_path / "words"
    sets = {"ray.prepare": 1, "engine.delay_s": 0.2}
    process = start(on_ray(source, out, head, **sets), words)

    def kill_all() -> bool:
        for pid in preparers(node.process.pid):
            os.kill(pid, signal.SIGKILL)
        return GIVEN_UP in words.read_text() or process.poll() is not None

    try:
        wait_until(kill_all, "the end of them", patience_s=LIMIT_S)
        assert GIVEN_UP in words.read_text()
        assert process.wait(LIMIT_S) == OK, words.read_text()
    finally:
        kill(process)
        node.kill()

    check_end(out, words.read_text(), plain, source)


def test_workers_with_gpus_are_prepared_for_on_nodes_without(
    tmp_path: Path, source: Path, head: Cluster, plain: list[object]
) -> None:
    with_gpu, without = head.add(cpus=2, gpus=1), head.add(cpus=1)
    out = tmp_path / "out"
    process = start(on_ray(source, out, head, **{"ray.gpus": 1}), tmp_path / "words")
    seen: dict[str, set[int]] = {"with": set(), "without": set()}

    def is_over() -> bool:
        seen["with"].update(preparers(with_gpu.process.pid, title=PREPARER))
        seen["without"].update(preparers(without.process.pid, title=PREPARER))
        return process.poll() is not None

    try:
        wait_until(is_over, "the run", patience_s=LIMIT_S)
    finally:
        kill(process)
        with_gpu.kill()
        without.kill()

    assert process.returncode == OK, (tmp_path / "words").read_text()
    assert seen["without"]
    assert not seen["with"]
    assert check_end(out, (tmp_path / "words").read_text(), plain, source) > 0
