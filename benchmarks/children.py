"""A process with engines, for benchmarks: started with a Python and packages of its own, asked line by line, ended whole.

It runs a script of this folder with `--serve FILE`, and not with this folder on its path: it holds files by the names of
libraries. Its first line says that its engines are open; each line it is sent it answers with one. Lines are JSON.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Child:
    """A process with an engine."""

    def __init__(
        self,
        script: str,
        side: str,
        told: dict[str, Any],
        folder: Path,
        *,
        python: str = sys.executable,
        path: str = "",
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            script: of this folder; it serves where it is given `--serve FILE`, which holds `told`.
            path: a folder of packages.
            environment: variables of its own.
        """
        self._script, self.side, self._told, self._folder = script, side, told, folder
        self._python, self._path, self._environment = python, path, environment or {}
        self._rest = b""
        self.start()

    def start(self) -> None:
        """Start it, or start it anew."""
        source = Path(self._folder / f"{self.side}.json")
        source.write_text(json.dumps(self._told), "utf-8")
        ours = str(HERE.parent / "src")
        paths = [ours, self._path, os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": ":".join(part for part in paths if part),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "true",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            **self._environment,
        }
        with (self._folder / f"{self.side}.log").open("ab") as log:
            # -P: this folder holds files by the names of the libraries.
            self._process = subprocess.Popen(
                [self._python, "-P", str(HERE / self._script), "--serve", str(source)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def answer(self, within_s: float) -> dict[str, Any]:
        """Its next line; a word of failure where none comes in time."""
        assert self._process.stdout is not None
        pipe, deadline = self._process.stdout.fileno(), time.monotonic() + within_s
        while b"\n" not in self._rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
                return {"failed": f"no answer in {within_s:.0f} s"}
            some = os.read(pipe, 65536)
            if not some:
                return {"failed": f"it ended: {self.last_words()}"}
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, task: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Have a file answered."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return {"failed": f"it is gone: {self.last_words()}"}
        return self.answer(within_s)

    def last_words(self) -> str:
        """The end of its log."""
        text = (
            (self._folder / f"{self.side}.log").read_bytes()[-3000:].decode("utf-8", "replace")
        )
        return " / ".join(text.splitlines()[-8:])

    def end(self) -> None:
        """End it and all it started: what has a session of its own by the way of its parents."""
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        self._rest = b""


def descendants(pid: int) -> list[int]:
    """Processes that this one started, and those they did."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, look = [], [pid]
    while look:
        here = parents.get(look.pop(), [])
        found += here
        look += here
    return found
