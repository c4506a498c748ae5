"""A Ray cluster of this machine: each node a `ray start --block` on 127.0.0.1 that can be killed like a machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.cases.endpoint import wait_until

STARTED = b"--block"
"""What `ray start --block` says once the node is up."""
START_S = 120.0
HEALTH = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "4",
}
"""A dead node is found dead within seconds, not in half a minute."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    **HEALTH,
}


def environment(folder: Path) -> dict[str, str]:
    """Of every process of a cluster, and of who connects to it."""
    return {**os.environ, **SETTINGS, "RAY_TMPDIR": str(folder)}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """The process and all below it, as far as they live."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(int(parent), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


@dataclass
class Node:
    """One `ray start --block`."""

    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """SIGKILL to the node and to all that it started, at once, as when its machine is cut off."""
        pids = descendants(self.process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        # Stopped, they start nothing: whoever was born in between is found now.
        for pid in {*pids, *descendants(self.process.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Cluster:
    """A head, and nodes beside it."""

    folder: Path
    port: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, *, cpus: int) -> Node:
        """Start a node; the first one is the head."""
        words = self.folder / f"node{len(self.nodes)}.log"
        head = ["--head", f"--port={self.port}", "--include-dashboard=false"]
        place = head if not self.nodes else [f"--address={self.address}"]
        # Of the interpreter that runs the tests, whatever lies on PATH.
        log = words.open("wb")
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                *place,
                *("--node-ip-address=127.0.0.1", f"--num-cpus={cpus}", "--num-gpus=0"),
                *("--object-store-memory=80000000", "--disable-usage-stats"),
                *([f"--temp-dir={self.folder}"] if not self.nodes else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(self.folder),
            start_new_session=True,
        )
        log.close()
        node = Node(process)
        self.nodes.append(node)
        _await_start(process, words)
        return node

    def close(self) -> None:
        """End every node, the head last."""
        for node in reversed(self.nodes):
            node.kill()


def _await_start(process: subprocess.Popen[bytes], words: Path) -> None:
    def is_up() -> bool:
        assert process.poll() is None, words.read_text()
        return STARTED in words.read_bytes()

    wait_until(is_up, "a node", patience_s=START_S)


@contextlib.contextmanager
def cluster(*cpus: int) -> Iterator[Cluster]:
    """A cluster with a node for each number, of so many cores."""
    # Names of sockets have 107 bytes at most, and Ray's take 70 of them: the test's own folder is too deep.
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    made = Cluster(folder, free_port())
    try:
        for number in cpus:
            made.add(cpus=number)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
