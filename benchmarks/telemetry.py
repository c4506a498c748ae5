"""What it costs that a run writes down how it stands: its share of the processor time of a run.

    python benchmarks/telemetry.py [--rows 1000000] [--rounds 5] [--without TREE]

Told are one moment and one sample, timed alone; and benchmarks/pipeline.py's job, `echo` from file to file, in which each call
that tells, samples or judges is timed by its thread's processor time, beside that of all processes of the run.
TREE is a checkout of a commit without samples (`git worktree add TREE COMMIT`): runs of both, interleaved, whose processor
times differ by more from run to run than by samples.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MOMENTS = 300
TELLING = ("begin", "hear", "tell", "tell_happened", "end", "verdict", "close")
"""Of executors/telling.py's `Teller`: all through which a run is told of. Those that call each other are counted once."""


def timed(source: Path, out: Path) -> float:
    """Run the job here. Returns: processor seconds of its thread in what tells of it."""
    from pipeline import run_rowmill

    from rowmill.executors.telling import Teller

    spent, depth = 0.0, 0

    def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            nonlocal spent, depth
            depth += 1
            began = time.thread_time()
            try:
                return method(*args, **named)
            finally:
                depth -= 1
                if not depth:
                    spent += time.thread_time() - began

        return call

    for name in TELLING:
        setattr(Teller, name, wrapped(getattr(Teller, name)))
    run_rowmill(source, out, "bytes")
    return spent


def share_of(source: Path, out: Path) -> tuple[float, float]:
    """Processor seconds in what tells of a run, and of the run with all it started."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, __file__, "--timed", str(source), str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    return float(said.split()[-1]), cpu_at_end(process)


def cpu_at_end(process: subprocess.Popen[Any]) -> float:
    """Wait for a process. Returns: processor seconds of it and of all it started."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


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
    return cpu_at_end(process)


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


def beside(without: Path, source: Path, out: Path, options: argparse.Namespace) -> None:
    """Runs of both trees in turn."""
    trees = {"without": without.resolve(), "with": HERE.parent}
    found: dict[str, list[float]] = {name: [] for name in trees}
    for number in range(options.rounds):
        # Who comes second pays for what the first one left to be written back.
        for name in sorted(trees, reverse=bool(number % 2)):
            found[name].append(cpu_of(trees[name], source, out))
        told = ", ".join(f"{name} {s[-1]:.2f} s" for name, s in found.items())
        print(f"round {number + 1}: {told}", flush=True)
    ratios = [w / o for w, o in zip(found["with"], found["without"], strict=True)]
    for name, seconds in found.items():
        a_row = statistics.median(seconds) / options.rows
        print(f"median {name}: {a_row * 1e6:.3f} us of processor time a row")
    print(
        f"ratio of pairs: {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
    )


def main() -> None:
    """Run the rounds; print one line each, then medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--without", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timed", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timed:
        print(timed(*options.timed))
        return
    look_s, take_s = alone()
    print(f"alone: {look_s * 1e6:.0f} us a moment, {take_s * 1e6:.0f} us a sample, of a core")
    print(f"       once a second: {look_s + take_s:.3%} of one core")
    from pipeline import make_input

    with tempfile.TemporaryDirectory(prefix="rowmill-bench-") as folder:
        source, out = Path(folder, "in.jsonl"), Path(folder, "out")
        make_input(source, options.rows)
        shares = []
        for number in range(options.rounds):
            telling_s, all_s = share_of(source, out)
            shares.append(telling_s / all_s)
            a_row = telling_s / options.rows * 1e6, all_s / options.rows * 1e6
            told = (
                f"{telling_s:.4f} of {all_s:.2f} s, {a_row[0]:.4f} of {a_row[1]:.2f} us a row"
            )
            print(f"round {number + 1}: {told}: {shares[-1]:.3%}", flush=True)
        print(
            f"share: {statistics.median(shares):.3%} ({min(shares):.3%} to {max(shares):.3%})"
        )
        if options.without is not None:
            beside(options.without, source, out, options)


if __name__ == "__main__":
    main()
