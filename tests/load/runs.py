"""Runs with vectors, and what a store should hold of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.load.stores import Held

DIMENSIONS = 16


def write_input(file: Path, rows: int, *, columns: dict[str, Any] | None = None) -> None:
    """Lines with an id, a text and a number."""
    lines = (
        json.dumps({"id": f"r{i}", "text": f"text number {i}", "n": i, **(columns or {})})
        for i in range(rows)
    )
    file.write_text("".join(line + "\n" for line in lines), "utf-8")


def job_of(folder: Path, *, rows: int, task_rows: int, sink: str = "", more: str = "") -> Path:
    """A job file beside its input, its output `out` beside it."""
    write_input(folder / "in.jsonl", rows)
    job = folder / "job.toml"
    sink = f'[sink]\nto = {json.dumps(sink)}\nmetric = "dot"\n' if sink else ""
    job.write_text(
        f'source = "{folder / "in.jsonl"}"\nkind = "embed"\n'
        f'[output]\npath = "{folder / "out"}"\nformat = "parquet"\n'
        f'[engine]\nname = "echo"\ntokenizer = "bytes"\ndimensions = {DIMENSIONS}\n'
        f"[run]\ntask_rows = {task_rows}\n{sink}{more}",
        "utf-8",
    )
    return job


def rowmill(*words: str, **extra: Any) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "rowmill", *words],
        capture_output=True,
        text=True,
        check=False,
        **extra,
    )


def began(*words: str) -> subprocess.Popen[bytes]:
    """The command, begun."""
    return subprocess.Popen(
        [sys.executable, "-m", "rowmill", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def done(*words: str) -> str:
    """What the command says, which must end well."""
    ended = rowmill(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def expected(out: Path, *, keys: Sequence[str] = ("id",)) -> Held:
    """What the results say that a store should hold."""
    found: Held = {}
    for part in sorted((out / "results").iterdir()):
        for row in pq.read_table(part).to_pylist():
            if row["rowmill_status"] == "ok":
                vector = np.array(row["rowmill_embedding"], "<f4").tobytes()
                found[row[keys[0]], 0] = vector, row["n"]
    return found
