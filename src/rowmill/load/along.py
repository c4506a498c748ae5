"""The process that loads a run's vectors, seen from the run.

Promises: the run waits for it at its end only; a run that stops leaves what is not loaded to the next start.
Knows nothing of: stores.
Memory: what the process said.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from rowmill.config import Job
from rowmill.events import Listener, Note
from rowmill.flow import Keeper
from rowmill.load.child import FINISH, LEAVE, Request, Said
from rowmill.load.loader import Total

HEAR_S = 1.0


class Along:
    """The process."""

    def __init__(self, url: str, job: Job, *, worker: str, listen: Listener | None) -> None:
        """Start it.

        Args:
            worker: whose commits alone it loads as they come; empty: all.
            listen: told of what it says.
        """
        self._listen, self._held = listen, b""
        self._result: Total | str = ""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "rowmill.load.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Ctrl-C in a terminal is for the run's own process.
            start_new_session=True,
        )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        tree = job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        self._write(msgspec.json.encode(Request(url, tree, worker)))
        self._keeper = Keeper(self._hear, HEAR_S, name="rowmill-load")

    def end(self, *, is_whole: bool) -> Total | str:
        """Wait until all is loaded that can be: what the store holds, or why it does not hold all.

        Args:
            is_whole: no more commits will come; else other workers go on.
        """
        self._write((FINISH if is_whole else LEAVE).encode())
        self._child.wait()
        self._keeper.stop()
        self._hear()
        return self._result or f"loading ended with status {self._child.returncode}"

    def stop(self) -> None:
        """End the process, where it has not ended."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        self._keeper.stop()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def _write(self, line: bytes) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line + b"\n")
        except BrokenPipeError:
            # It has ended, and said why.
            return

    def _hear(self) -> None:
        """Take in what it said since."""
        assert self._child.stdout is not None
        while piece := self._child.stdout.read():
            self._held += piece
        *lines, self._held = self._held.split(b"\n")
        for line in lines:
            said = msgspec.json.decode(line, type=Said)
            if said.note and self._listen is not None:
                self._listen(Note(text=said.note))
            self._result = said.total or said.failed or self._result
