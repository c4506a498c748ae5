"""Commands without the second that importing takes: a process that has imported rowmill forks one for each.

A command is a process of its own, as `python -m rowmill` is: its pid, folder, pipes, signals and end. What Python decides as it
starts is that of this process (encodings, the seed of hashes, the time zone), so `tests.cases.command` comes here only with
commands whose environment is the one that this process was started with.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

MOST_REQUEST = 1 << 20
SET_BY_PYTEST = "PYTEST_CURRENT_TEST"
IMPORTED = (
    "numpy.ma",
    "pyarrow.compute",
    "pyarrow.parquet",
    "rich.console",
    "rowmill.batch",
    "rowmill.cli",
    "rowmill.diagnose",
    "rowmill.engines.echo",
    "rowmill.engines.http_stream",
    "rowmill.executors.far",
    "rowmill.executors.local",
    "rowmill.job_file",
    "rowmill.join.lines",
    "rowmill.progress",
    "rowmill.publish",
    "rowmill.rehearse",
    "rowmill.report.page",
    "rowmill.report.status",
    "rowmill.storage.remote",
    "rowmill.weighing",
    "rowmill.write.sinks",
    "urllib.request",
)


class Server:
    """One process that forks commands; it ends with the process that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = own(environment)
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            words = [sys.executable, "-m", "tests.cases.warm", str(there.fileno())]
            self._process = subprocess.Popen(
                words,
                pass_fds=[there.fileno()],
                # Pipes, as those that a command gets: what Python makes of them as it starts is right for those, too.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=Path(__file__).resolve().parents[2],
                env=environment,
            )

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None,
        limit_s: float,
    ) -> tuple[int, bytes, bytes]:
        """A command to its end: what it returned, and what it wrote on stdout and stderr.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was killed.
        """
        pipes = [os.pipe() for _ in range(3)]
        request = {
            "arguments": list(arguments),
            "test": environment.get(SET_BY_PYTEST, ""),
            "cwd": str(cwd or Path.cwd()),
        }
        try:
            given = [write for _, write in pipes]
            socket.send_fds(self._here, [json.dumps(request).encode()], given)
        finally:
            for _, write in pipes:
                os.close(write)
        told, stdout, stderr = _read_all([read for read, _ in pipes], limit_s, list(arguments))
        pid, _, status = told.partition(b" ")
        assert status, f"the command {pid!r} has no end"
        return os.waitstatus_to_exitcode(int(status)), stdout, stderr


def own(environment: Mapping[str, str]) -> dict[str, str]:
    """What must be the same for a command to be forked."""
    return {name: value for name, value in environment.items() if name != SET_BY_PYTEST}


def _read_all(pipes: Sequence[int], limit_s: float, arguments: list[str]) -> list[bytes]:
    """What is written into pipes until nobody holds their other ends."""
    found = [b""] * len(pipes)
    give_up_at = time.monotonic() + limit_s
    with selectors.DefaultSelector() as waiting:
        for number, pipe in enumerate(pipes):
            waiting.register(pipe, selectors.EVENT_READ, number)
        while waiting.get_map():
            if time.monotonic() > give_up_at:
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(found[0].partition(b" ")[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, limit_s, found[1], found[2])
            for key, _ in waiting.select(0.5):
                part = os.read(key.fd, 1 << 16)
                found[key.data] += part
                if not part:
                    waiting.unregister(key.fd)
                    os.close(key.fd)
    return found


def serve(requests: socket.socket) -> None:
    """Fork a command for each request; comes back in a command's process, and at the end."""
    for name in IMPORTED:
        __import__(name)
    # Collectors of commands need not look at what lies here.
    gc.freeze()
    # Nobody waits for those who wait for the commands.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, given, _, _ = socket.recv_fds(requests, MOST_REQUEST, 3)
        if not message:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            become(json.loads(message), *given)
            return
        for pipe in given:
            os.close(pipe)


def become(request: dict[str, str], told: int, stdout: int, stderr: int) -> None:
    """Start the command, and come back as it; who waits for it never comes back."""
    pid = os.fork()
    if pid:
        os.close(stdout)
        os.close(stderr)
        os.write(told, b"%d " % pid)
        _, status = os.waitpid(pid, 0)
        os.write(told, b"%d" % status)
        os._exit(0)
    os.close(told)
    for pipe, number in ((stdout, 1), (stderr, 2)):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ[SET_BY_PYTEST] = request["test"]
    os.chdir(request["cwd"])
    random.seed()
    sys.argv = ["rowmill", *request["arguments"]]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv.pop())))
    if len(sys.argv) > 1:
        # As `python -m rowmill` does it, to the ends of its threads and processes.
        runpy.run_module("rowmill", run_name="__main__", alter_sys=True)
