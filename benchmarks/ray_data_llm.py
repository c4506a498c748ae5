"""Ray Data LLM and rowmill on Ray: the same rows, the same vLLM with the same settings, one worker each.

    PYTHON benchmarks/ray_data_llm.py --model FOLDER [--rows 400] [--rounds 2] [--folder FOLDER]

PYTHON has Ray with its data part, a vLLM that it can drive (also one for CPUs) and rowmill. The model is a folder in
Hugging Face's layout. What is measured: a JSON Lines file to result files, as a child process with a Ray of its own,
engine start and all; `answers` is from the first row given to the engine to the last file, as far as the contender tells.
Every 50th row is longer than the context: what becomes of those rows, and of the others, is told beside.
Ray Data LLM gets the prompt as text, its own tokenizing left to vLLM, and `should_continue_on_error`, without which the
first such row ends the job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTEXT, SEATS, MAX_TOKENS, LONG_EVERY = 512, 32, 16, 50
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
RAY_DATA = """
import sys, time
import ray, ray.data
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

source, out, model, context, seats, max_tokens = sys.argv[1:7]
ray.init(address="local", include_dashboard=False, num_cpus=3, log_to_driver=False)
config = vLLMEngineProcessorConfig(
    model_source=model,
    engine_kwargs=dict(
        enforce_eager=True, dtype="bfloat16", max_model_len=int(context), max_num_seqs=int(seats)
    ),
    batch_size=64,
    concurrency=1,
    placement_group_config={"bundles": [{"CPU": 1}]},
    chat_template_stage=False,
    tokenize_stage=False,
    detokenize_stage=False,
    log_engine_metrics=False,
    should_continue_on_error=True,
)
sampling = dict(temperature=0, max_tokens=int(max_tokens), ignore_eos=True)
answered = build_processor(
    config, preprocess=lambda row: {**row, "sampling_params": sampling}
)
answered(ray.data.read_json(source, lines=True)).write_json(out)
"""


def make_rows(path: Path, num_rows: int) -> None:
    with path.open("w", encoding="ascii") as file:
        for i in range(num_rows):
            words = CONTEXT if i % LONG_EVERY == LONG_EVERY - 1 else 1
            row = {"id": i, "prompt": f"Row {i} of many: " + "say something short. " * words}
            file.write(json.dumps(row) + "\n")


def ray_data(source: Path, out: Path, model: str) -> list[str]:
    settings = [str(source), str(out), model, str(CONTEXT), str(SEATS), str(MAX_TOKENS)]
    return [sys.executable, "-c", RAY_DATA, *settings]


def rowmill(source: Path, out: Path, model: str) -> list[str]:
    sets = {
        "engine.dtype": "bfloat16",
        "engine.enforce_eager": "true",
        "engine.cpu_kv_gib": 1,
        "engine.max_model_len": CONTEXT,
        "engine.seats": SEATS,
        "sampling.temperature": 0,
        "sampling.max_tokens": MAX_TOKENS,
        "sampling.ignore_eos": "true",
        "ray.workers": 1,
        "raw": "true",
    }
    flags = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "rowmill",
        "run",
        str(source),
        "-o",
        str(out),
        "--engine",
        "vllm",
    ]
    return [*command, "--model", model, "--executor", "ray", *flags]


def fates(folder: Path, error: str, text: str) -> str:
    """What became of the rows, in words."""
    files = sorted(folder.rglob("*.json*")) if folder.exists() else []
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    failed = sum(bool(row.get(error)) for row in rows)
    answered = sum(bool(row.get(text)) for row in rows)
    ids = {row["id"] for row in rows if row.get("id") is not None}
    return f"{len(rows)} rows with {len(ids)} ids: {answered} answered, {failed} with an error"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        source = folder / "rows.jsonl"
        make_rows(source, asked.rows)
        for round_ in range(asked.rounds):
            for contender in (ray_data, rowmill)[:: 1 if round_ % 2 == 0 else -1]:
                out = folder / f"{contender.__name__}{round_}"
                began = time.monotonic()
                done = subprocess.run(
                    contender(source, out, asked.model),
                    capture_output=True,
                    text=True,
                    check=False,
                    env={**os.environ, **ENVIRONMENT},
                )
                seconds = time.monotonic() - began
                where = out / "results" if contender is rowmill else out
                columns = ("rowmill_error", "rowmill_text")
                words = fates(
                    where,
                    *(
                        columns
                        if contender is rowmill
                        else ("__inference_error__", "generated_text")
                    ),
                )
                load = os.getloadavg()[0]
                print(
                    f"{contender.__name__:<9} {seconds:6.1f} s, exit {done.returncode}, load {load:.1f}: {words}",
                    flush=True,
                )
                told = [line for line in done.stderr.splitlines() if line.startswith("done: ")]
                print(*told, sep="\n", end="\n" if told else "")
                if not words.startswith(f"{asked.rows} rows"):
                    print(done.stderr[-3000:], file=sys.stderr)


if __name__ == "__main__":
    main()
