"""Tables of `rowmill bench` for model shapes, workloads and settings that belong together, one after the other.

    python benchmarks/vllm.py --tokenizer DIR [--only short,mixed-0.5b] [--gpu 0] [--out results.json]

Speed does not depend on the values of weights, so models are shapes alone, with `load_format="dummy"`: folders with
a config.json of the published values of Qwen2.5, and the tokenizer that is named (of Qwen2.5, or of Qwen3: the shared
part of the vocabulary is the same). Answers have fixed lengths, so every contender does the same work.
Tables go to stdout and are appended to FILE.md, all numbers go into FILE.json, whole after each case.
`--only` takes cases (`short-0.5b`) and workloads (`short`); `--list` shows them. What is behind `--` goes to
`rowmill bench` as it is, as `-- --contender generate --contender rowmill --profile`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from shapes import make_model

ALWAYS = (
    *("load_format=dummy", "max_model_len=8192"),
    # What `vllm.LLM` takes by itself on such a GPU, told to all.
    *("max_num_seqs=1024", "max_num_batched_tokens=16384"),
    # All engines are there at once: each is told its KV cache, and looks for a quarter of the GPU at its start.
    "gpu_memory_utilization=0.25",
)
POOL = "kv_cache_memory_bytes=24000000000"
SMALL_POOL = f"kv_cache_memory_bytes={12_000 * 16 * 28_672}"
"""12,000 blocks of the 1.5B shape: 192k tokens."""


class Case(NamedTuple):
    """One table."""

    workload: str
    shape: str
    sets: tuple[str, ...] = (POOL,)
    options: tuple[str, ...] = ()


CASES = {
    # The pool is cut to 192k tokens, so that 400 prefixes of 1,000 do not fit.
    "prefixes-1.5b": Case("prefixes", "1.5b", (SMALL_POOL,)),
    "short-0.5b": Case("short", "0.5b"),
    "short-7b": Case("short", "7b"),
    "mixed-0.5b": Case("mixed", "0.5b"),
    "both-0.5b": Case("short,mixed", "0.5b"),
    "both-7b": Case("system:4000,mixed:2000", "7b"),
    # Those whose forecast is held against what they take, engines open throughout.
    "plans-1.5b": Case(
        "prefixes,control:1000:5,few_shot:2000,system:2000", "1.5b", (SMALL_POOL,)
    ),
    "mixed-7b": Case("mixed:2000", "7b"),
    "mixed-7b-fp8": Case("mixed:2000", "7b", (POOL, "quantization=fp8")),
    "system-0.5b": Case("system", "0.5b"),
    "system-1.5b": Case("system", "1.5b"),
    "system-7b": Case("system", "7b"),
}


def chosen(only: str) -> list[str]:
    """Names of cases."""
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    found = [
        name
        for name, case in CASES.items()
        if not wanted or name in wanted or case.workload in wanted
    ]
    known = {*CASES, *(case.workload for case in CASES.values())}
    unknown = sorted(set(wanted) - known)
    if unknown:
        sys.exit(f"there is no case `{unknown[0]}`; known: {', '.join(sorted(known))}")
    return found


def measure(case: Case, model: Path, target: Path, arguments: list[str]) -> dict[str, Any]:
    """One call of `rowmill bench`; its JSON. What it has to say goes to our stderr."""
    command = [sys.executable, "-m", "rowmill", "bench"]
    command += ["--workload", case.workload, "--model", str(model), "--out", str(target)]
    for setting in (*ALWAYS, *case.sets):
        command += ["--engine-set", setting]
    done = subprocess.run([*command, *case.options, *arguments], check=False)
    found: dict[str, Any] = json.loads(target.read_text("utf-8")) if target.exists() else {}
    return {**found, "exit_code": done.returncode}


def append(results: Path, name: str, found: dict[str, Any]) -> None:
    """Add a case to the file of all, and its tables to the page beside it."""
    every = json.loads(results.read_text("utf-8")) if results.exists() else []
    draft = results.with_suffix(".new")
    draft.write_text(json.dumps([*every, {"case": name, **found}], indent=1), "utf-8")
    draft.replace(results)
    with results.with_suffix(".md").open("a", encoding="utf-8") as page:
        for table in found.get("tables", []):
            page.write(f"{table['markdown']}\n- Command: `{found['command']}`\n\n")


def read_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Ours, and what is behind `--`."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json")
    parser.add_argument("--only", default="", help="cases or workloads, by commas; all")
    parser.add_argument("--list", action="store_true", help="show the cases")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", type=Path, help="where model folders go; a temporary one")
    parser.add_argument("--max-seconds", type=float, help="for all cases together")
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    return parser.parse_args(words[:at]), words[at + 1 :]


def main() -> None:
    arguments, passed = read_arguments()
    if arguments.list or arguments.tokenizer is None:
        for name, case in CASES.items():
            print(name, *case.sets)
        print("nothing was measured: give `--tokenizer DIR`, on a machine with a GPU and vLLM")
        return
    ends_at = time.monotonic() + arguments.max_seconds if arguments.max_seconds else None
    with tempfile.TemporaryDirectory(prefix="rowmill-models-") as temporary:
        models = arguments.models or Path(temporary)
        for name in chosen(arguments.only):
            options = ["--gpu", arguments.gpu, "--rounds", str(arguments.rounds)]
            if arguments.rows:
                options += ["--rows", str(arguments.rows)]
            if ends_at is not None:
                left_s = ends_at - time.monotonic()
                if left_s <= 0:
                    print(f"{name}: no time is left")
                    continue
                options += ["--max-seconds", f"{left_s:.0f}"]
            model = make_model(CASES[name].shape, models, arguments.tokenizer)
            target = Path(temporary) / f"{name}.json"
            append(
                arguments.out, name, measure(CASES[name], model, target, [*options, *passed])
            )


if __name__ == "__main__":
    main()
