"""A process of contenders, seen from its parent: started, given tasks, ended with all it started.

Promises: no wait is longer than the deadline; nothing of it outlives `end`.
Knows nothing of: rounds, what contenders do.
Memory: none to speak of.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from rowmill.bench.records import Failed, Ready, Run, Spec, Task

GRACE_S = 20.0
_TAIL_BYTES, _TAIL_LINES = 4096, 6
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    # A forked engine of a process with threads may wait for ever for a lock that one of them held.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Else tokenizers falls back to one thread in a process that was forked from.
    "TOKENIZERS_PARALLELISM": "true",
}

_messages = msgspec.json.Decoder(Ready | Run | Failed)


class OutOfTimeError(Exception):
    """The deadline came before the answer."""


class Process:
    """One process of contenders."""

    def __init__(self, resident: str, spec: Spec, folder: Path, *, deadline: float) -> None:
        """Start it; its engine opens while `ready` waits.

        Args:
            deadline: on the monotonic clock.
        """
        place = folder / f"{resident}.json"
        place.write_bytes(msgspec.json.encode(spec))
        self.log = folder / f"{resident}.log"
        self._deadline = deadline
        self._rest = b""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rowmill.bench.contender", resident, str(place)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**ENVIRONMENT, **os.environ},
                start_new_session=True,
            )

    def ready(self) -> Ready | Failed:
        """Wait until the engine is open.

        Raises:
            OutOfTimeError: the deadline came first.
        """
        found = self._answer()
        assert not isinstance(found, Run)
        return found

    def run(self, task: Task) -> Run | Failed:
        """Have a file answered.

        Raises:
            OutOfTimeError: the deadline came first.
        """
        try:
            self._send(task)
        except OSError:
            return self._gone()
        found = self._answer()
        assert not isinstance(found, Ready)
        return found

    def end(self, *, at_once: bool = False) -> None:
        """End it: with time to close its engine, or at once."""
        if not at_once:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._send(Task())
                self._process.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _send(self, task: Task) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()

    def _answer(self) -> Ready | Run | Failed:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0 or not select.select([pipe], [], [], min(left_s, 3600.0))[0]:
                if left_s <= 3600.0:
                    raise OutOfTimeError
                continue
            some = os.read(pipe, 65536)
            if not some:
                return self._gone()
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        found: Ready | Run | Failed = _messages.decode(line)
        return found

    def _gone(self) -> Failed:
        """It died; what it started, as an engine that still has rows, would compute beside those that come next."""
        code = self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        text = self.log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace")
        last = " / ".join(text.splitlines()[-_TAIL_LINES:])
        return Failed(reason=f"its process ended with code {code}; it said last: {last}")
