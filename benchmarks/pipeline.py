"""Rows a second from file to file, when the engine costs next to nothing.

    python benchmarks/pipeline.py [--rows 1000000] [--tokenizer bytes|FOLDER] [--rounds 3] [--memory]

What is measured, each in a process of its own, in interleaved rounds over the same file:
  rowmill    JSON Lines -> validate -> measure -> plan -> `echo` in a child process -> results, published
  pydantic   each line through a pydantic model of an OpenAI batch line, `model_validate_json` and `model_dump_json`,
             written to a file: what the front end of `vllm run-batch` does with a line, engine left out
  encode     with a tokenizer folder: bare `tokenizers.encode_batch` over the same prompts, batches of 8,192
Rows are about 300 bytes, answers 16 tokens. Times are wall clock from the process's first line of work to the last
byte; `--memory` adds the highest resident size of the rowmill parent.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

TEXT = """time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number night
point home water room mother area money story fact month lot right study book"""
BATCH_ROWS = 8192


def make_input(path: Path, rows: int) -> None:
    """Batch lines of about 300 bytes; the same seed gives the same file."""
    rng = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            body = {"model": "m", "prompt": _text(rng), "max_tokens": 16}
            line = {
                "custom_id": f"row-{i:09d}",
                "method": "POST",
                "url": "/v1/completions",
                "body": body,
            }
            file.write(json.dumps(line) + "\n")


def _text(rng: random.Random) -> str:
    words = rng.choices(TEXT.split(), k=40)
    return " ".join(words)[:185].ljust(185, "x")


def run_rowmill(source: Path, out: Path, tokenizer: str) -> dict[str, Any]:
    """The whole journey, once."""
    import rowmill

    job = rowmill.Job.model_validate(
        {
            "source": str(source),
            "output": str(out),
            "engine": {
                "name": "echo",
                "tokenizer": tokenizer,
                "answer": "text" if tokenizer == "bytes" else "numbers",
            },
            "raw": True,
        }
    )
    began = time.perf_counter()
    summary = rowmill.run(job)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "ok": summary.ok,
        "engine_start_s": summary.engine_start_s,
        "answered_s": summary.seconds,
    }


def run_pydantic(source: Path, out: Path, _tokenizer: str) -> dict[str, Any]:
    """Validate and dump each line with models of the batch format's fields."""
    from pydantic import BaseModel

    class Completion(BaseModel):
        model: str | None = None
        prompt: list[int] | list[list[int]] | str | list[str] | None = None
        max_tokens: int | None = 16
        temperature: float | None = None
        top_p: float | None = None
        n: int = 1
        seed: int | None = None
        stop: str | list[str] | None = None
        stream: bool | None = False
        logprobs: int | None = None
        echo: bool | None = False
        user: str | None = None

    class Line(BaseModel):
        custom_id: str
        method: Literal["POST"]
        url: str
        body: Completion

    began = time.perf_counter()
    with source.open(encoding="utf-8") as lines, out.open("w", encoding="utf-8") as file:
        count = 0
        for line in lines:
            file.write(Line.model_validate_json(line).model_dump_json() + "\n")
            count += 1
    return {"seconds": time.perf_counter() - began, "ok": count}


def run_encode(source: Path, _out: Path, tokenizer: str) -> dict[str, Any]:
    """Bare encode_batch over prompts that are in memory already."""
    from tokenizers import Tokenizer

    coder = Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
    with source.open(encoding="utf-8") as lines:
        prompts = [json.loads(line)["body"]["prompt"] for line in lines]
    began = time.perf_counter()
    tokens = 0
    for start in range(0, len(prompts), BATCH_ROWS):
        tokens += sum(
            len(e.ids) for e in coder.encode_batch(prompts[start : start + BATCH_ROWS])
        )
    return {"seconds": time.perf_counter() - began, "ok": len(prompts), "tokens": tokens}


CONTENDERS = {"rowmill": run_rowmill, "pydantic": run_pydantic, "encode": run_encode}


def measure(name: str, source: Path, folder: Path, tokenizer: str) -> dict[str, Any]:
    """One contender in a fresh process."""
    out = folder / f"{name}.out"
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--contender", name, str(source), str(out), tokenizer]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def contend(arguments: argparse.Namespace) -> None:
    """Inside the fresh process."""
    name, source, out, tokenizer = arguments.contender
    result = CONTENDERS[name](Path(source), Path(out), tokenizer)
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result["parent_cpu_s"] = time.process_time()
    sys.stdout.write(json.dumps(result))


def main() -> None:
    """Run the rounds and print one line each, then medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=CONTENDERS)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--contender", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        contend(arguments)
        return
    names = arguments.only or [
        "rowmill",
        "pydantic",
        *(["encode"] if arguments.tokenizer != "bytes" else []),
    ]
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="rowmill-bench-"))
    source = folder / f"in-{arguments.rows}.jsonl"
    if not source.exists():
        make_input(source, arguments.rows)
    rates: dict[str, list[float]] = {name: [] for name in names}
    print(
        f"{arguments.rows:,} rows, {source.stat().st_size / arguments.rows:.0f} bytes each, {os.cpu_count()} cores"
    )
    for number in range(arguments.rounds):
        for name in names:
            result = measure(name, source, folder, arguments.tokenizer)
            assert result["ok"] == arguments.rows
            rates[name].append(arguments.rows / result["seconds"])
            told = ", ".join(f"{k} {v:,.2f}" for k, v in result.items() if k != "ok")
            print(
                f"round {number + 1}: {name}: {rates[name][-1]:,.0f} rows/s ({told})",
                flush=True,
            )
    for name, found in rates.items():
        print(
            f"median {name}: {statistics.median(found):,.0f} rows/s ({min(found):,.0f} to {max(found):,.0f})"
        )


if __name__ == "__main__":
    main()
