"""The tables that need GPUs, set by set; `--max-seconds` leaves out what does not fit into the time of a machine.

    python benchmarks/suite.py vllm --tokenizer DIR --out FOLDER
    python benchmarks/suite.py sharing --tokenizer DIR --out FOLDER
    python benchmarks/suite.py tune --tokenizer DIR --out FOLDER
    python benchmarks/suite.py engines --tokenizer DIR --out FOLDER     # two GPUs
    python benchmarks/suite.py --list

Parts run one after the other; what one prints is FOLDER/NAME.log, its numbers are FOLDER/NAME.json, and what engines said of
tables is in FOLDER/NAME-logs. One that takes longer than it may is ended with all it started, and the next one begins: `--only`
runs those again that are named. FOLDER/suite.json says after each part what became of it. Words of a part in braces are folders
that are given here: `{vllm}` and `{sglang}` are folders of packages (`--vllm-path`, `--sglang-path`), for libraries that cannot
be installed side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Part(NamedTuple):
    """One script, or a module behind `-m`."""

    words: str
    most_s: float


def bench(only: str, most_s: float, behind: str = "--slow run_batch", rounds: int = 3) -> Part:
    """One table of vllm.py; what engines said stays beside it."""
    words = (
        f"vllm.py --tokenizer {{tokenizer}} --models {{models}} --only {only} --rounds {rounds}"
    )
    ends = f"--max-seconds {most_s - 20:.0f} --out {{json}} -- --folder {{out}}/{{name}}-logs"
    return Part(f"{words} {ends} {behind}", most_s)


def tuning(shape: str, part: str, most_s: float) -> Part:
    """A sweep, what `tune` finds, or what is foretold of a workload and taken."""
    words = f"tuning.py --shape {shape} --tokenizer {{tokenizer}} --gpu --context 8192"
    if part in SAID_ROWS:
        asked = f"--rows {SAID_ROWS[part]} --seconds 12 --starts 1 --workloads --only {part}"
        return Part(f"{words} {asked} --out {{out}}/said-{shape}-{part}.json", most_s)
    asked = f"--rows 40000 --seconds 20 --part {part}"
    return Part(f"{words} {asked} --out {{out}}/tuning-{shape}.json", most_s)


SAID_ROWS = {"mixed": 20_000, "system": 30_000, "short": 300_000}
"""What an H200 with the 1.5B shape does in about two minutes: one to learn from, and one that is foretold."""


THREE = "--contender generate --contender five_line --contender rowmill"
"""Without those that are the slowest, where a round takes minutes. On one H200 `vllm.LLM` started in 104 to 154 s with
16 cores, and rowmill beside it in 14 to 72."""
SETS = {
    "vllm": {
        "doctor": Part("-m rowmill doctor", 60),
        "mixed-7b-fp8": bench("mixed-7b-fp8", 430, f"{THREE} --profile"),
        "planted": Part(
            "planted.py --engine vllm --together --shape 1.5b --seconds 9 --disk-bytes-s 100000 --most-s 280 --json {json}",
            300,
        ),
        "mixed-0.5b": bench("mixed-0.5b", 430, f"{THREE} --contender sorted --slow sorted"),
        "both-7b": bench("both-7b", 560, THREE),
        "cases": Part(
            "-m pytest -q -p no:cacheprovider -m vllm tests/engines/test_vllm_cases.py", 330
        ),
        "defaults": bench("short-0.5b", 240, "--defaults only --slow run_batch"),
    },
    # How many engines share a GPU best, each table with its profile.
    "sharing": {
        f"mixed-0.5b-{number}": bench(
            "mixed-0.5b",
            160,
            f"--contender rowmill --profile --engine-set replicas={number}",
            rounds=2,
        )
        for number in (5, 3, 2, 8, 1)
    },
    "tune": {
        "embed": Part(
            "vllm_embed.py --minutes 5 --out {out}/embed.md --log {out}/embed-all.log", 330
        ),
        **{
            f"tune-{shape}-{part}": tuning(shape, part, most_s)
            for shape in ("1.5b", "7b")
            for part, most_s in (("sweep", 300), ("tune", 420))
        },
        **{f"said-1.5b-{workload}": tuning("1.5b", workload, 210) for workload in SAID_ROWS},
    },
    "engines": {
        "gpus": Part(
            "gpus.py --tokenizer {tokenizer} --points 1,2 --workload mixed --rows 2000 --max-seconds 400"
            " --path {vllm} --json {json}",
            430,
        ),
        "sglang": Part(
            "sglang.py --tokenizer {tokenizer} --vllm-path {vllm} --sglang-path {sglang} --max-seconds 560 --json {json}",
            600,
        ),
        "transformers": Part(
            "transformers_gpu.py --tokenizer {tokenizer} --shape 0.5b --rows 600 --max-seconds 240 --json {json}",
            330,
        ),
    },
}


def run(name: str, part: Part, arguments: argparse.Namespace) -> dict[str, object]:
    """Run a part to its end, or end it; what became of it."""
    out = arguments.out
    folders = {
        "name": name,
        "out": out,
        "json": out / f"{name}.json",
        "tokenizer": arguments.tokenizer,
        "models": arguments.models or out / "models",
        "vllm": arguments.vllm_path,
        "sglang": arguments.sglang_path,
    }
    words = [word.format(**folders) for word in part.words.split()]
    if words[0].endswith(".py"):
        words[0] = str(HERE / words[0])
    began = time.monotonic()
    with (out / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=HERE.parent,
            start_new_session=True,
        )
        try:
            code: int | str = process.wait(part.most_s)
        except subprocess.TimeoutExpired:
            code = "took too long"
        # Also what a part that ended by itself has left: the next one wants the GPU.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {"code": code, "seconds": round(time.monotonic() - began, 1), "command": words}


@contextlib.contextmanager
def shared_gpu(folder: Path) -> Iterator[None]:
    """CUDA MPS of our own meanwhile: processes that share a GPU compute at the same time instead of in turns."""
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = str(folder / "pipes")
    os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(folder / "log")
    for name in ("pipes", "log"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)


def main() -> None:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("set", nargs="?", choices=sorted(SETS))
    cli.add_argument(
        "--list", action="store_true", help="show the parts, with their most seconds"
    )
    cli.add_argument("--only", default="", help="parts, by commas")
    cli.add_argument(
        "--tokenizer", type=Path, help="folder with tokenizer.json, of Qwen2.5 or Qwen3"
    )
    cli.add_argument("--out", type=Path, default=Path("out/suite"))
    cli.add_argument(
        "--models",
        type=Path,
        help="where model folders go, FOLDER/models; the same path lets vLLM find what it compiled for it before",
    )
    cli.add_argument("--vllm-path", default="", help="a folder of packages")
    cli.add_argument("--sglang-path", default="", help="a folder of packages")
    cli.add_argument("--mps", action="store_true", help="with CUDA MPS, names end in -mps")
    cli.add_argument(
        "--max-seconds", type=float, default=1e9, help="what does not fit is left out"
    )
    arguments = cli.parse_args()
    if arguments.list or not arguments.set or arguments.tokenizer is None:
        for name, parts in SETS.items():
            print(
                f"{name}: "
                + ", ".join(f"{key} ({part.most_s:.0f} s)" for key, part in parts.items())
            )
        if not arguments.list:
            print(
                "nothing was measured: name a set and `--tokenizer DIR`, on a machine with GPUs"
            )
        return
    arguments.out = arguments.out.resolve()
    arguments.tokenizer = arguments.tokenizer.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = [word for word in arguments.only.split(",") if word]
    with shared_gpu(arguments.out / "mps") if arguments.mps else contextlib.nullcontext():
        run_all(arguments, wanted)


def run_all(arguments: argparse.Namespace, wanted: list[str]) -> None:
    """The parts of a set, or those that are wanted."""
    ends_at = time.monotonic() + arguments.max_seconds
    found: dict[str, object] = {}
    for name, part in SETS[arguments.set].items():
        if wanted and name not in wanted:
            continue
        name += "-mps" * arguments.mps
        left_s = ends_at - time.monotonic()
        # What would end in its middle shows nothing.
        if left_s < part.most_s / 2:
            found[name] = {"code": "left out"}
        else:
            found[name] = run(name, part._replace(most_s=min(part.most_s, left_s)), arguments)
        print(name, found[name], flush=True)
        (arguments.out / "suite.json").write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
