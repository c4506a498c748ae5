"""The scripted endpoint of tests/fakes as a child on 127.0.0.1, and what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rowmill.rows import Prompts, Sampling

FAKE = Path(__file__).parent.parent / "fakes" / "fake_openai.py"


class FakeEndpoint:
    """A running fake."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats") as response:
            found: dict[str, Any] = json.loads(response.read())
        return found

    def hits(self) -> list[dict[str, Any]]:
        wanted = int(self.stats()["hits"])
        # A line is written after its answer was sent.
        give_up_at = time.monotonic() + 10
        while len(lines := self._log.read_text().splitlines()) < wanted:
            assert time.monotonic() < give_up_at, (
                f"{len(lines)} of {wanted} requests are logged"
            )
            time.sleep(0.01)
        return [json.loads(line) for line in lines]


@contextmanager
def fake_endpoint(
    folder: Path, *flags: str, plan: Sequence[Any] = ()
) -> Iterator[FakeEndpoint]:
    """Start the fake with a plan of faults; ended by its process id."""
    (folder / "plan.json").write_text(json.dumps(list(plan)))
    log = folder / "hits.jsonl"
    command = [
        sys.executable,
        str(FAKE),
        "--plan",
        str(folder / "plan.json"),
        "--log",
        str(log),
    ]
    process = subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().split()[1]
        yield FakeEndpoint(url, log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wire_prompts(
    values: Sequence[Any],
    *,
    field: str = "prompt",
    samplings: Sequence[Sampling] = (),
    max_tokens: int = 0,
) -> Prompts:
    """Rows that are sent as they are; `samplings` one for all, or one a row."""
    each = list(samplings) or [Sampling()]
    count = len(values)
    return Prompts(
        keys=list(range(count)),
        ids=np.empty(0, np.uint32),
        stops=np.zeros(count, np.int64),
        max_tokens=[max_tokens] * count,
        samplings=each,
        sampling_of=list(range(count)) if len(each) > 1 else [0] * count,
        wires=[msgspec.json.encode(value) for value in values],
        wire_fields=[field] * count,
    )
