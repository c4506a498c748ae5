"""An engine child of this process: started, talked to, ended with all it started.

Promises: the child leads a session of its own; nothing of it outlives `end`, nor this process.
Knows nothing of: rows, restarts.
Memory: none to speak of.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import orphans
from rowmill.engines.channel import Channel, ChannelClosed, Fatal, Open, Ready, pair
from rowmill.rows import Limits

_REAP_S = 0.3
_LOOK_S = 0.2
_TAIL_BYTES = 4096
_TAIL_LINES = 8


class NotReady(Exception):
    """The engine is not waited for any longer."""


class EngineProcess:
    """One child with its channel."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: Channel, life_fd: int
    ) -> None:
        self.channel = channel
        self.fatal: Fatal | None = None
        """What the child said before it ended."""
        self._process = process
        self._life_fd = life_fd

    @property
    def pid(self) -> int:
        """Process id, process group and session of the child."""
        return self._process.pid

    def open(
        self, engine: EngineConfig, *, within_s: float, is_over: Callable[[], bool]
    ) -> Limits:
        """Have the child open the engine.

        Raises:
            ChannelClosed: It died before it was ready; `fatal` holds its words, if it had any.
            NotReady: It took longer than `within_s`, or `is_over` says that it is not needed any more.
        """
        deadline = time.monotonic() + within_s

        def look() -> None:
            if is_over() or time.monotonic() > deadline:
                raise NotReady

        self.channel.send(Open(engine.model_dump(mode="json")))
        self.channel.on_quiet(_LOOK_S, look)
        message, _ = self.channel.receive()
        self.channel.on_quiet(0.0, None)
        if isinstance(message, Ready):
            return message.limits
        if isinstance(message, Fatal):
            self.fatal = message
        raise ChannelClosed

    def end(self, *, grace_s: float = 0.0) -> str:
        """End the child and its whole group, and wait until they are gone.

        Args:
            grace_s: How long after SIGTERM before SIGKILL; 0 goes to SIGKILL at once.

        Returns:
            How the child ended, in words.
        """
        if grace_s > 0 and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        # A process that just died is not always reaped yet, and how it died must not be hidden by our own signal.
        self.wait(_REAP_S)
        own_end = self._process.poll()
        orphans.end_group(self.pid)
        self._process.wait()
        self.channel.close()
        life_fd, self._life_fd = self._life_fd, -1
        if life_fd >= 0:
            os.close(life_fd)
        return "it stopped talking" if own_end is None else _ending(own_end)

    def kill(self) -> None:
        """SIGKILL to the whole group, a stopped one too; whoever sends to it is let go."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def memory_bytes(self) -> int:
        """What the processes of the group hold in memory, together."""
        return sum(map(orphans.resident_bytes, orphans.members(self.pid)))

    def wait(self, wait_s: float) -> None:
        """Give the child time to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(wait_s)


def start_process(
    *, log: Path, record: Path | None, environment: Mapping[str, str]
) -> EngineProcess:
    """Start a child that waits for its engine's settings.

    Args:
        log: File that its output is appended to.
        record: File that lets a later start find the child, should this process be killed.
        environment: Variables it has beside those of this process.

    Raises:
        EngineDied: The system does not let a process start.
    """
    mark = secrets.token_hex(16)
    ours, theirs = pair()
    life_read, life_write = os.pipe()
    command = [sys.executable, "-P", "-m", "rowmill.engines.child"]
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(life_read)],
                pass_fds=(theirs.fileno(), life_read),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **environment,
                    orphans.MARK: mark,
                    "PYTHONPATH": _own_paths(),
                },
                start_new_session=True,
            )
    except OSError as error:
        os.close(life_write)
        raise errors.EngineDied(reason=f"cannot start the engine's process: {error}") from error
    finally:
        theirs.close()
        os.close(life_read)
    child = EngineProcess(process, Channel(ours), life_write)
    if record is not None:
        try:
            orphans.record_process(record, process.pid, mark=mark)
        except OSError as error:
            child.end()
            raise errors.StorageError(path=str(record), reason=str(error)) from error
    return child


def last_lines(log: Path, start: int) -> str:
    """The last words of an engine in its log, from byte `start` on, as one line."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:])


def _own_paths() -> str:
    """Where this process finds modules beyond what every process of this interpreter has."""
    usual = (sys.prefix, sys.base_prefix)
    return os.pathsep.join(path for path in sys.path if path and not path.startswith(usual))


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"signal {name}"
