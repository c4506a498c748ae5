"""The fake endpoint as a child process: started, asked what it saw, ended by its pid."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "fake_openai.py"
PATIENCE_S = 30.0

Serve = Callable[..., "Endpoint"]


class Endpoint:
    """A scripted OpenAI-compatible endpoint on 127.0.0.1; its model is `tiny`."""

    def __init__(
        self,
        folder: Path,
        *,
        plan: Path | None = None,
        max_model_len: int = 4096,
        max_batch: int = 2048,
        delay_s: float = 0.0,
        port: int = 0,
        is_logged: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "hits.jsonl"
        options = ["--port", str(port), "--max-model-len", str(max_model_len)]
        options += ["--delay", str(delay_s), "--max-batch", str(max_batch)]
        options += ["--plan", str(plan)] if plan else []
        options += ["--log", str(self._log)] if is_logged else []
        with (folder / "stderr").open(
            "w"
        ) as words:  # its threads complain of every cut connection
            self._process = subprocess.Popen(
                [sys.executable, str(FAKE), *options],
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )
        assert self._process.stdout is not None
        first = self._process.stdout.readline().split()
        assert first[:1] == ["LISTENING"], first
        self.url = first[1]
        self.port = int(self.url.rsplit(":", 1)[1].split("/")[0])

    @property
    def stats(self) -> dict[str, Any]:
        """Hits, statuses, most requests with one body."""
        root = self.url.removesuffix("/v1")
        with urllib.request.urlopen(f"{root}/stats", timeout=PATIENCE_S) as answer:
            stats: dict[str, Any] = json.load(answer)
        return stats

    @property
    def hits(self) -> int:
        """Requests so far."""
        return int(self.stats["hits"])

    def requests(self) -> list[dict[str, Any]]:
        """All requests, each with its `body` text (cut at 4,000 characters), `t` and `took`."""
        hits = self.hits
        wait_until(lambda: len(self._log.read_bytes().splitlines()) >= hits, "the log is whole")
        lines = self._log.read_text("utf-8").splitlines()
        return sorted(map(json.loads, lines), key=lambda request: int(request["hit"]))

    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of all requests."""
        return [json.loads(request["body"]) for request in self.requests()]

    def wait_hits(self, hits: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until so many requests came from a process that lives."""
        wait_until(lambda: self.hits >= hits or process.poll() is not None, f"{hits} requests")
        assert process.poll() is None, f"the run ended before {hits} requests"

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def wait_until(is_so: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Look again and again until something is so; fail where it never is."""
    give_up_at = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < give_up_at, f"in vain waited for: {what}"
        time.sleep(0.02)
