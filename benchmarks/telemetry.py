"""What it costs that a run writes down how it stands: processor seconds a row, beside a source tree that does not.

    python benchmarks/telemetry.py --without TREE [--rows 1000000] [--rounds 5]

TREE is a checkout of a commit without samples (`git worktree add TREE COMMIT`). Both run benchmarks/pipeline.py's job, `echo`
from file to file, in interleaved rounds; told is the processor time of the whole tree of processes, which does not depend on
what else the machine does as wall clocks do. Before that, one moment and one sample of this process are timed alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOMENTS = 300


def cpu_of(tree: Path, source: Path, out: Path) -> float:
    """Processor seconds of one run and all it started."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, str(HERE / "pipeline.py"), "--contender", "rowmill"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    process = subprocess.Popen(
        [*command, str(source), str(out), "bytes"],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def alone() -> tuple[float, float]:
    """Processor seconds of one moment, and of one sample, with an engine's process beside."""
    from rowmill.telemetry import Sampler

    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        sampler = Sampler()
        depths = {f"waiting/{i}": 1.0 for i in range(12)}
        began = time.process_time()
        for _ in range(MOMENTS):
            sampler.look(depths)
        looked = time.process_time()
        for _ in range(MOMENTS):
            sampler.take({})
        took = time.process_time()
        child.kill()
    return (looked - began) / MOMENTS, (took - looked) / MOMENTS


def main() -> None:
    """Run the rounds; print one line each, then medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--without", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    look_s, take_s = alone()
    print(f"alone: {look_s * 1e6:.0f} us a moment, {take_s * 1e6:.0f} us a sample, of a core")
    print(f"       once a second: {look_s + take_s:.3%} of one core")
    if options.without is None:
        return
    from pipeline import make_input

    with tempfile.TemporaryDirectory(prefix="rowmill-bench-") as folder:
        source = Path(folder, "in.jsonl")
        make_input(source, options.rows)
        trees = {"without": options.without.resolve(), "with": HERE.parent}
        found: dict[str, list[float]] = {name: [] for name in trees}
        for number in range(options.rounds):
            # Who comes second pays for what the first one left to be written back.
            for name in sorted(trees, reverse=bool(number % 2)):
                found[name].append(cpu_of(trees[name], source, Path(folder, "out")))
            told = ", ".join(f"{name} {s[-1]:.2f} s" for name, s in found.items())
            print(f"round {number + 1}: {told}", flush=True)
        ratios = [w / o for w, o in zip(found["with"], found["without"], strict=True)]
        for name, seconds in found.items():
            a_row = statistics.median(seconds) / options.rows
            print(f"median {name}: {a_row * 1e6:.3f} us of processor time a row")
        print(
            f"ratio of pairs: {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
        )


if __name__ == "__main__":
    main()
