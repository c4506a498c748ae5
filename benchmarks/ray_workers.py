"""Workers on a Ray cluster beside one worker without Ray: what the cluster costs where the engine costs nothing.

    python benchmarks/ray_workers.py [--rows 1000000] [--workers 1 2 4] [--rounds 3] [--folder FOLDER]

What is measured: `rowmill run` with `echo` (byte tokenizer, answers as numbers) from one JSON Lines file to results, as
a child process: `local`, and `ray` with so many workers on a cluster of one node that this script starts and ends.
The contenders of a round run one after another, in an order that turns with the round. `whole` is the command from
its start to its end, `work` what it tells as `seconds`: from the first row to the last outcome (Ray: to the last
commit), `start` what it tells as `engine_start_s`: actors and engines. All workers share the cores of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.executors.ray.nodes import cluster, environment


def make_rows(path: Path, num_rows: int) -> None:
    with path.open("w", encoding="ascii") as file:
        file.writelines(
            f'{{"id": {i}, "text": "row {i} of many, as long as a short sentence is"}}\n'
            for i in range(num_rows)
        )


def run_once(source: Path, out: Path, flags: list[str], folder: Path) -> dict[str, Any]:
    """One run. Returns: its summary, and the seconds of the whole command."""
    words = [sys.executable, "-m", "rowmill", "run", str(source), "-o", str(out), *flags]
    sets = [
        "--engine",
        "echo",
        "--set",
        'engine.answer="numbers"',
        "--prompt",
        "{text}",
        "--json",
    ]
    began = time.monotonic()
    done = subprocess.run(
        [*words, *sets], capture_output=True, text=True, check=False, env=environment(folder)
    )
    whole = time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    return {**json.loads(done.stdout.splitlines()[-1]), "whole": whole}


def tell(name: str, told: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> None:
    wholes = [one["whole"] for one in told]
    ratios = [one["whole"] / base["whole"] for one, base in zip(told, baseline, strict=True)]
    print(
        f"{name:<8} whole {statistics.median(wholes):6.1f} s ({min(wholes):.1f} to {max(wholes):.1f})"
        f"  work {statistics.median(one['seconds'] for one in told):6.1f} s"
        f"  start {statistics.median(one['engine_start_s'] for one in told):5.1f} s"
        f"  over local {statistics.median(ratios):.2f}x",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=asked.folder) as name,
        cluster(max(asked.workers)) as nodes,
    ):
        folder = Path(name)
        source = folder / "rows.jsonl"
        make_rows(source, asked.rows)
        ray = ["--executor", "ray", "--address", nodes.address]
        contenders = {"local": list[str]()}
        for number in asked.workers:
            contenders[f"ray {number}"] = [*ray, "--set", f"ray.workers={number}"]
        told: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
        for round_ in range(asked.rounds):
            names = list(contenders)
            for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
                one = run_once(
                    source, folder / f"{name}{round_}", contenders[name], nodes.folder
                )
                assert one["ok"] == asked.rows, one
                told[name].append(one)
                load = os.getloadavg()[0]
                print(
                    f"  round {round_} {name}: {one['whole']:.1f} s, load {load:.1f}",
                    flush=True,
                )
        print(f"{asked.rows:,} rows, {asked.rounds} rounds, {os.cpu_count()} cores")
        for name, runs in told.items():
            tell(name, runs, told["local"])


if __name__ == "__main__":
    main()
