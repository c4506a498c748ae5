"""Runs that reports are made of: real ones of the echo engine, and one of before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import rowmill

HOSTILE_ID = "<script>alert(1)</script>"
HOSTILE_FILE = "a<b>&'x'.jsonl"
OF_BEFORE = Path(__file__).resolve().parents[1] / "golden" / "run_of_before"
FAULTS: list[dict[str, Any]] = [
    {"contains": "REFUSE", "action": "error"},
    {"contains": "FLAKY", "action": "transient", "times": 2},
    {"contains": "BUSY", "action": "transient"},
]


def texts(number: int) -> list[str]:
    """So many texts of different lengths; some are refused, some fail in passing, some for good."""
    words = ["", "REFUSE ", "FLAKY ", "BUSY "]
    return [
        f"{words[i % 50] if i % 50 < len(words) else ''}{'word ' * (1 + i % 23)}{i}"
        for i in range(number)
    ]


def write_rows(folder: Path, number: int) -> Path:
    """An input with so many rows, one of them without its text, with an id and a name that HTML has words for."""
    rows: list[dict[str, Any]] = [
        {"id": f"row-{i}", "text": text} for i, text in enumerate(texts(number))
    ]
    rows[number // 2] = {"id": HOSTILE_ID, "title": "no text"}
    path = folder / HOSTILE_FILE
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def settings(source: Path, output: Path, **more: Any) -> dict[str, Any]:
    """A job over it."""
    return {
        "source": str(source),
        "output.path": str(output),
        "prompt": "Say: {text}",
        "engine.name": "echo",
        "engine.faults": FAULTS,
        "sampling.max_tokens": 60,
        "sampling.temperature": 0,
        "run.task_rows": 1000,
        "run.gpu_hour_price": 2.0,
        **more,
    }


def make_run(folder: Path, number: int = 3000, **more: Any) -> Path:
    """A run over so many rows; where it lies."""
    folder.mkdir(exist_ok=True)
    output = folder / "out"
    job = rowmill.load_job(None, settings=settings(write_rows(folder, number), output, **more))
    rowmill.run(job)
    return output


def with_gpus(run: Path, output: Path) -> Path:
    """A copy of a run whose events tell of two GPUs, a KV cache and a forecast, as a machine that has them would."""
    shutil.copytree(run, output)
    (events,) = (output / "events").iterdir()
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    samples = [line for line in lines if line["event"] == "sample"]
    for number, sample in enumerate(samples):
        part = (number + 1) / len(samples)
        sample["cached_tokens"] = int(0.6 * sample.get("prompt_tokens", 0))
        sample["engine"] = {
            "running": 900,
            "waiting": 40,
            "kv_use": 0.5 + part / 3,
            "preemptions": 7,
        }
        sample["gpus"] = [_gpu(index, part) for index in range(2)]
    for line in lines:
        if line["event"] == "engineready":
            line |= {"gpus": ["NVIDIA H200"] * 2, "kv_tokens": 2_000_000, "step_tokens": 16384}
        if line["event"] == "planned":
            line["said"] = {
                "seconds": 30.0,
                "low_s": 20.0,
                "high_s": 45.0,
                "ideal_s": 15.0,
                "hit_rate": 0.7,
                "hit_rate_bound": 0.8,
            }
    events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return output


def _gpu(index: int, part: float) -> dict[str, Any]:
    return {
        "index": index,
        "use": 0.9 - 0.2 * index * part,
        "memory_use": 0.5,
        "memory_bytes": 120 * 2**30,
        "power_w": 480.0 + 50 * index,
        "power_limit_w": 700.0,
        "tensor_use": 0.4 + part / 4,
        "bandwidth_use": 0.3,
    }
