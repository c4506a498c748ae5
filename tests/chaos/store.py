"""Episodes whose output lies in a real S3 server, behind a proxy that does it harm."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import obstore

from tests.chaos.s3_proxy import Plan, S3Proxy
from tests.chaos.scene import Scene
from tests.chaos.schedule import Episode, Strike
from tests.chaos.strikes import awaited, died_in_words
from tests.kill import left
from tests.kill.small_job import SmallJob
from tests.servers.s3_server import S3Server

BUCKET = "chaos"
RETRY_S = 4.0
TICK_S = 0.2
"""So often a worker looks whether a checkpoint is due."""


class StoreScene(Scene):
    """A scene whose `job.out` is a copy, made anew at each look, of what lies in the store."""

    def __init__(
        self, job: SmallJob, *, killers: frozenset[str], proxy: S3Proxy, server: S3Server
    ) -> None:
        super().__init__(job, killers=killers)
        self.proxy = proxy
        self._looked_back_to = 0.0
        # Beside the proxy: what lies there is looked at without harm.
        self._store = server.store(BUCKET, prefix=_prefix(job))

    @property
    def is_done(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            obstore.head(self._store, "done.json")
            return True
        return False

    def look(self, folder: str = "") -> None:
        shutil.rmtree(self.job.out / folder, ignore_errors=True)
        listed = obstore.list(self._store, prefix=folder or None)
        for found in (one for chunk in listed for one in chunk):
            file = self.job.out / found["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            # Removed since it was listed: then it is not there.
            with contextlib.suppress(FileNotFoundError):
                file.write_bytes(obstore.get(self._store, found["path"]).bytes())

    def written(self, what: Literal["commits", "results"]) -> int:
        return self.proxy.count("PUT", f"/{what}/")

    def engines(self) -> list[int]:
        pids = left.living(self.job.mark)
        return [pid for pid in pids if b"rowmill.engines.child" in _command(pid)]

    def token(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            note = json.loads(bytes(obstore.get(self._store, "leases/owner.json").bytes()))
            return str(note["token"]) if note["members"] else ""
        return ""

    def unkept_rows(self) -> int:
        """An object is written whole: what was answered since the last checkpoint lies nowhere."""
        settings, since = self.job.settings, self._looked_back_to
        self._looked_back_to = time.monotonic()
        longest_s = self.proxy.longest_write_s(since)
        between_s = float(settings["run.checkpoint_s"]) + TICK_S + longest_s
        return round(self.job.seats / float(settings["engine.delay_s"]) * between_s)

    def count_harms(self) -> None:
        """Seen: the client was told of it and asked the same again, or waited for a late answer and got it."""
        for harm, was_seen in self.proxy.came_to_harm():
            self.saw(f"store: {harm}", was_seen)


def store_gone(scene: Scene, strike: Strike) -> None:
    """Nothing is answered until the worker gives up. Seen: it died in words; then the store is there again."""
    assert isinstance(scene, StoreScene)
    worker = awaited(scene, strike)
    if worker is None:
        return
    scene.proxy.plan.is_down.set()
    try:
        died_in_words(scene, strike, worker, "; tried ")
    finally:
        scene.proxy.plan.is_down.clear()


@contextlib.contextmanager
def store_scene(
    episode: Episode, job: SmallJob, server: S3Server, *, killers: frozenset[str]
) -> Iterator[StoreScene]:
    """The scene of an episode, behind a proxy of its own."""
    with S3Proxy(server.endpoint, Plan(dict(episode.harms), episode.aims)) as proxy:
        environment = {
            **server.environment,
            "AWS_ENDPOINT_URL": proxy.endpoint,
            "ROWMILL_STORE_RETRY_S": str(RETRY_S),
        }
        job = replace(job, target=f"s3://{BUCKET}/{_prefix(job)}", environment=environment)
        yield StoreScene(job, killers=killers, proxy=proxy, server=server)


def make_bucket(server: S3Server) -> None:
    """The first object brings its bucket along."""
    obstore.put(server.store(BUCKET), "first", b"")


def _prefix(job: SmallJob) -> str:
    return f"run-{job.mark}"


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
