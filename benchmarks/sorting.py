"""What it takes to sort the whole input before a run, file to file with the echo engine.

    python benchmarks/sorting.py [--rows 10000000] [--group 16]

Rows of about 300 bytes come in groups that begin alike, shuffled over the whole input; the same input is run with
`plan.sort` = `window` and `input`, each in a process of its own whose peak is told.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from large import run_watched, size_of

AT_ONCE = 1 << 16
SHARED, OWN = 200, 60


def write_input(path: Path, rows: int, group: int) -> None:
    """Rows of groups; what a group begins with is made of its number."""
    order = np.random.default_rng(1).permutation(rows)
    with path.open("wb") as file:
        for start in range(0, rows, AT_ONCE):
            for i in order[start : start + AT_ONCE].tolist():
                begin = f"{i // group * 2654435761 % 2**32:010d} ".encode() * (SHARED // 11)
                own = f"{i * 40503 % 2**32:010d} ".encode() * (OWN // 11)
                file.write(b'{"id": %d, "doc": "%b", "question": "%b"}\n' % (i, begin, own))


def measure(source: Path, out: Path, sort: str) -> None:
    """One run."""
    command = [sys.executable, "-m", "rowmill", "run", str(source), "-o", str(out)]
    command += ["--engine", "echo", "--prompt", "{doc}{question}", "--json"]
    for setting in (f"plan.sort={sort}", "sampling.max_tokens=8", "sampling.temperature=0"):
        command += ["--set", setting]
    found = run_watched(command)
    peaks = ", ".join(f"{role} {peak:,} MiB" for role, peak in found["peak_mib"].items())
    results = size_of(out / "results") / 1e9
    print(f"{sort}: {found['seconds']:.0f} s; {peaks}; results {results:.2f} GB", flush=True)
    print(json.dumps(found["told"]), flush=True)


def main() -> None:
    """The same input twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--sorts", nargs="*", default=["window", "input"])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rowmill-sorting-"))
    try:
        source = folder / "rows.jsonl"
        write_input(source, arguments.rows, arguments.group)
        size = source.stat().st_size / 1e9
        print(
            f"{arguments.rows:,} rows, {size:.2f} GB, groups of {arguments.group}", flush=True
        )
        for sort in arguments.sorts:
            measure(source, folder / sort, sort)
            shutil.rmtree(folder / sort, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
