"""A job of a few hundred rows, small enough to be killed again and again: input, command, started workers.

Every process of a trial carries the trial's mark in its environment, so none of them can hide.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MARK = "ROWMILL_KILL_TRIAL"
LIMIT_S = 60.0
NEVER = 100_000
"""Rows, more than any job here has."""
Kind = Literal["jsonl", "jsonl.gz", "parquet"]


@dataclass(frozen=True)
class SmallJob:
    """One job in a folder of its own."""

    folder: Path
    rows: list[dict[str, Any]]
    """Every input row as it is expected back: `place`, and its columns."""
    settings: dict[str, Any]
    source: Path
    """Where the rowmill under test lies."""
    num_lines: int
    """Of all files, the blank ones too."""
    kind: Kind = "jsonl"
    """Of the input."""
    options: tuple[str, ...] = ()
    """Of the command, besides settings."""
    target: str = ""
    """Where the output goes; empty: to `out`."""
    environment: dict[str, str] = field(default_factory=dict)
    """Of its processes, besides ours."""
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    workers: list[Worker] = field(default_factory=list)
    """Every one that was started."""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def log(self) -> Path:
        """A line for each row that an engine started."""
        return self.folder / "starts"

    @property
    def num_tasks(self) -> int:
        """Of all lines, the blank ones too."""
        return -(-self.num_lines // int(self.settings["run.task_rows"]))

    @property
    def seats(self) -> int:
        """Of all engines together."""
        return int(self.settings["engine.seats"]) * int(self.settings.get("engine.replicas", 1))

    @property
    def most_in_flight(self) -> int:
        """Rows that an engine may have at once: its seats, and what it answers in two seconds."""
        if self.settings["run.max_failed_after"] == NEVER:
            return self.seats
        return self.seats + int(2 * self.seats / float(self.settings["engine.delay_s"]))

    def start(self, *, join: str = "") -> Worker:
        """Start a worker: the owner of a new run, or one more of the run whose token is given."""
        command = [sys.executable, "-m", "rowmill", "run", *map(str, self._files())]
        command += ["-o", self.target or str(self.out), "--engine", "echo", "--json"]
        command += ["--join", join] if join else [*self.options]
        for key, value in {**self.settings, "engine.log": str(self.log)}.items():
            command += ["--set", f"{key}={_toml(value)}"]
        words = self.folder / f"words-{secrets.token_hex(4)}"
        with words.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **self.environment,
                    "PYTHONPATH": str(self.source),
                    MARK: self.mark,
                },
                cwd=self.folder,
                start_new_session=True,
            )
        worker = Worker(process, words)
        self.workers.append(worker)
        return worker

    def token(self) -> str:
        """Of the run that owns the output now; empty where none says so yet."""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            note = json.loads((self.out / "leases/owner.lock").read_bytes())
            return str(note["token"]) if note["members"] else ""
        return ""

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob(f"f*.{self.kind}"))


@dataclass(frozen=True)
class Worker:
    """A started `rowmill run`."""

    process: subprocess.Popen[bytes]
    words: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """To this process alone: what it started has to notice by itself."""
        self.process.send_signal(number)

    def code(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(LIMIT_S)

    def told(self) -> str:
        """The end of what it wrote."""
        return self.words.read_text("utf-8", "replace")[-2000:]


def draw_job(
    rng: random.Random,
    folder: Path,
    *,
    source: Path = SOURCE,
    settings: dict[str, Any] | None = None,
    has_equals: bool | None = None,
    kind: Kind = "jsonl",
) -> SmallJob:
    """A job drawn by chance: two or three files, some blank lines, equal prompts in some jobs.

    Args:
        settings: come over those drawn.
        kind: what the input is written as.
        has_equals: whether many prompts are equal; None draws.
    """
    folder.mkdir(parents=True)
    total = rng.randint(240, 360)
    if has_equals is None:
        has_equals = rng.random() < 0.5
    made: list[dict[str, Any]] = []
    num_lines = 0
    for name, count in zip(("f0", "f1", "f2"), _split(rng, total), strict=True):
        lines: list[str] = []
        for i in range(count):
            if kind != "parquet" and rng.random() < 0.02:
                lines.append("")
            prompt = f"say {name} {i}" if not has_equals else f"say {rng.randrange(total)}"
            row = {
                "id": f"{name}-{i}",
                "prompt": f"{prompt} \u00e9\u4f60" + "x" * rng.randint(0, 60),
                "kept": {"n": i << 40, "half": i / 2, "none": None, "text": f" {name}\u0301"},
            }
            lines.append(json.dumps(row, ensure_ascii=rng.random() < 0.5))
            made.append({"place": f"{name}.{kind}:{len(lines)}", **row})
        num_lines += len(lines)
        _write(folder / f"{name}.{kind}", lines, kind)
    drawn: dict[str, Any] = {
        "engine.tokenizer": "bytes",
        "engine.seats": rng.choice([4, 8, 16]),
        "engine.delay_s": rng.choice([0.001, 0.003, 0.006]),
        "sampling.temperature": 0,
        "plan.window_rows": rng.choice([50, 8192]),
        "run.task_rows": rng.choice([50, 70, 100]),
        "run.checkpoint_s": rng.choice([0.1, 1.0]),
        # So many rows must be answered before any are sent ahead of the seats.
        "run.max_failed_after": rng.choice([20, NEVER, NEVER]),
    }
    return SmallJob(folder, made, {**drawn, **(settings or {})}, source, num_lines, kind)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml(one)}' for name, one in value.items())}}}"
    return json.dumps(value)


def _write(path: Path, lines: list[str], kind: Kind) -> None:
    if kind == "parquet":
        rows = [json.loads(line) for line in lines]
        kept = pa.struct(
            [
                ("n", pa.int64()),
                ("half", pa.float64()),
                ("none", pa.int8()),
                ("text", pa.string()),
            ]
        )
        schema = pa.schema([("id", pa.string()), ("prompt", pa.large_string()), ("kept", kept)])
        pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=64)
        return
    content = "".join(f"{line}\n" for line in lines).encode()
    # Several members: what one writer after the other appends.
    half = len(content) // 2
    packed = gzip.compress(content[:half]) + gzip.compress(content[half:])
    path.write_bytes(packed if kind == "jsonl.gz" else content)


def _split(rng: random.Random, total: int) -> tuple[int, int, int]:
    first = rng.randint(1, total // 2)
    second = rng.randint(0, total - first)
    return first, second, total - first - second
