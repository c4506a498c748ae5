"""An Indexed Job as rendered, under a small Job controller, over a real S3 server: struck, and whole at its end."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rowmill.kubernetes.render import render
from tests.cases.compare import read_records
from tests.cases.on_s3 import Prefix, new_prefix
from tests.kubernetes.controller import Controller
from tests.kubernetes.jobs import job_of
from tests.kubernetes.node import Node, Pod, marked
from tests.servers.s3_server import S3Server

TICK_S = 0.02
LIMIT_S = 1500.0
LEASE_S = 3.0
MOST_DEATHS = 4
"""That count, of one index: more than six give it up."""
SECRETS = {
    "AWS_ACCESS_KEY_ID": "store/id",
    "AWS_SECRET_ACCESS_KEY": "store/key",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


class Scene:
    """A Job over rows in a bucket."""

    def __init__(
        self, folder: Path, server: S3Server, rows: int, rng: random.Random, **more: Any
    ) -> None:
        self.rng, self.rows, self.folder = rng, rows, folder
        self.place = new_prefix(server)
        lines = [json.dumps({"id": at, "text": f"row {at} of {rows}"}) for at in range(rows)]
        for part in range(3):
            text = "\n".join(lines[part * rows // 3 : (part + 1) * rows // 3]) + "\n"
            self.place.put(f"in/f{part}.jsonl", text.encode())
        self.out = Prefix(server, f"{self.place.key}/out")
        known = server.environment
        plain = {name: value for name, value in known.items() if name not in SECRETS}
        job = job_of(
            **{
                "source": [f"{self.place.url}/in/*.jsonl"],
                "output.path": self.out.url,
                "engine.seats": 4,
                "engine.delay_s": 0.1,
                "run.task_rows": 40,
                "run.lease_s": LEASE_S,
                "run.checkpoint_s": 1.0,
                "run.drain_s": 1.0,
                "plan.window_rows": 16,
                "kubernetes.workers": 6,
                "kubernetes.parallelism": 4,
                "kubernetes.secrets": SECRETS,
                "kubernetes.environment": plain,
                **more,
            }
        )
        self.rendered = render(job)
        values = {reference: known[name] for name, reference in SECRETS.items()}
        self.node = Node(folder / "pods", self.rendered.documents, values)
        order = list(range(job.kubernetes.workers))
        rng.shuffle(order)
        self.controller = Controller(self.rendered.documents[-1], self.node, order)
        self._give_up_at = time.monotonic() + LIMIT_S

    def pause(self) -> None:
        assert time.monotonic() < self._give_up_at, self.told()
        threading.Event().wait(TICK_S)

    def told(self) -> str:
        """What pods said, the last of each."""
        ends = [
            f"{pod.name}: {pod.exit_code} {action}" for pod, action in self.controller.ended
        ]
        logs = [
            log.read_text(errors="replace")[-600:] for log in sorted(self.folder.rglob("log"))
        ]
        return "\n".join([*ends[-40:], *logs[-6:]])

    def run(self, seconds: float) -> None:
        """So long, or to the end."""
        until = time.monotonic() + seconds
        self.controller.run(
            lambda: self.controller.is_over or time.monotonic() > until, self.pause
        )

    def finish(self) -> None:
        self.controller.run(lambda: self.controller.is_over, self.pause)

    def check_whole(self) -> None:
        """Every row once, as it should be, in input order; nothing lives."""
        assert not self.controller.failed_by, self.told()
        assert self.out.names("done.json"), self.told()
        found = [
            record
            for name in self.out.names("results/")
            for record in read_records(self._copied(name))
        ]
        assert [record["id"] for record in found] == list(range(self.rows)), self.told()
        assert {record["rowmill_status"] for record in found} == {"ok"}
        said = [record["rowmill_text"] for record in found]
        assert said == [record["text"] for record in found]
        assert not [pid for pod, _ in self.controller.ended for pid in marked(pod.name)]

    def _copied(self, name: str) -> Path:
        file = self.folder / "copied" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(self.out.get(name))
        return file

    def workers_of_commits(self) -> Counter[str]:
        """How many tasks each pod committed."""
        names = self.out.names("commits/")
        return Counter(json.loads(self.out.get(name))["worker"] for name in names)


@contextmanager
def scene(folder: Path, server: S3Server, rows: int, seed: str, **more: Any) -> Iterator[Scene]:
    made = Scene(folder, server, rows, random.Random(seed), **more)
    try:
        yield made
    finally:
        made.node.close()


def strike(found: Scene) -> str:
    """One disruption of a random kind, at a pod that is there."""
    alive = [p for p in found.node.pods if not p.is_over and p.kill_at is None]
    if not alive:
        return ""
    pod = found.rng.choice(alive)
    how = found.rng.choices(list(STRIKES), [weight for weight, _ in STRIKES.values()])[0]
    if how == "out of memory" and found.controller.failures[pod.index] >= MOST_DEATHS:
        return ""
    STRIKES[how][1](found, pod)
    return how


def slow(found: Scene, pod: Pod) -> None:
    """All of a pod stands still, maybe so long that its leases are taken over, and goes on."""
    found.node.freeze(pod, is_frozen=True)
    found.run(found.rng.uniform(0.5, 2) * LEASE_S)
    found.node.freeze(pod, is_frozen=False)


def scale(found: Scene, _pod: Pod) -> None:
    found.controller.parallelism = found.rng.randint(1, 5)


STRIKES: dict[str, tuple[int, Callable[[Scene, Pod], object]]] = {
    "preempt": (4, lambda found, pod: found.controller.preempt(pod)),
    "short notice": (
        3,
        lambda found, pod: found.controller.preempt(pod, found.rng.uniform(0, 0.5)),
    ),
    "lost": (4, lambda found, pod: found.controller.lose(pod)),
    "out of memory": (1, lambda found, pod: found.node.kill(pod)),
    "scale": (2, scale),
    "twice": (2, lambda found, pod: found.controller.start(pod.index)),
    "slow": (2, slow),
}
"""Kind of disruption -> how often, and what happens."""


@pytest.mark.parametrize(
    ("strikes", "rows"),
    [(12, 1200), pytest.param(100, 12_000, marks=pytest.mark.k8s)],
)
def test_a_job_is_complete_after_random_disruptions(
    tmp_path: Path, s3_server: S3Server, strikes: int, rows: int
) -> None:
    with scene(tmp_path, s3_server, rows, f"disrupted {strikes}") as found:
        done: Counter[str] = Counter()
        while done.total() < strikes:
            found.run(found.rng.uniform(0.1, 1.5))
            assert not found.controller.is_over, (done, found.told())
            how = strike(found)
            if how:
                done[how] += 1
        found.controller.parallelism = 4
        found.finish()

        found.check_whole()
        assert not found.controller.failed
    print(done, Counter(action for _, action in found.controller.ended))  # noqa: T201 - the toll


def test_each_index_does_its_own_tasks_and_all_end_with_0(
    tmp_path: Path, s3_server: S3Server
) -> None:
    with scene(tmp_path, s3_server, 1200, "undisturbed") as found:
        found.finish()

        found.check_whole()
        assert found.controller.succeeded == set(range(6))
        assert len(found.workers_of_commits()) >= 4


def test_an_index_that_lives_twice_doubles_nothing(tmp_path: Path, s3_server: S3Server) -> None:
    with scene(tmp_path, s3_server, 600, "twice") as found:
        found.run(0)
        found.controller.step()
        for pod in list(found.node.pods):
            found.controller.start(pod.index)
        found.finish()

        found.check_whole()


def test_a_slow_pod_holds_nothing_up(tmp_path: Path, s3_server: S3Server) -> None:
    """It stands still while it holds tasks; the others do them; it wakes to find that."""
    with scene(tmp_path, s3_server, 600, "slow") as found:
        found.controller.run(lambda: bool(found.out.names("commits/")), found.pause)
        victim = found.node.pods[0]
        found.node.freeze(victim, is_frozen=True)
        found.controller.run(lambda: bool(found.out.names("done.json")), found.pause)
        found.node.freeze(victim, is_frozen=False)
        found.finish()

        found.check_whole()


def test_a_job_that_is_refused_ends_at_once(tmp_path: Path, s3_server: S3Server) -> None:
    with scene(tmp_path, s3_server, 60, "refused", prompt="{nothing}") as found:
        found.finish()

        assert "ended with 2" in found.controller.failed_by, found.told()


def test_failed_rows_fail_no_pod(tmp_path: Path, s3_server: S3Server) -> None:
    faults = [{"contains": "row 7 of", "action": "error"}]
    with scene(tmp_path, s3_server, 120, "rows", **{"engine.faults": faults}) as found:
        found.finish()

        assert found.controller.succeeded == set(range(6)), found.told()
        assert found.out.names("done.json")
