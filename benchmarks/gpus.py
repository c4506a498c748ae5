"""How a run grows with GPUs: so many rows a GPU, on 1, 2, 4 and 8 of one machine, replicas and tensor parallel.

    python benchmarks/gpus.py --tokenizer DIR --points 1,2,4,8 --rows 10000 --json gpus.json
    python benchmarks/gpus.py --tokenizer DIR --points 1,2 --workload mixed --rows 2000
    python benchmarks/gpus.py --tokenizer DIR --shape 72b --points 2:2,4:2,4:4,8:2,8:4,8:8 --rows 1000

A point is GPUS or GPUS:TENSOR_PARALLEL; `8:2` is four engines of two GPUs each. Of each point a process opens its engines
(that time is told apart), answers a small file, then one file of its own a round: `rowmill run` from the file to published
results. Weights are random, answers of fixed lengths: `even` is 256 tokens and 64 out, `mixed` has long tails.
Beside each stand what `rowmill check` forecasts, and where its time went. FILE.json holds what is known after each
round; with `--max-seconds` what no longer fits is left out. Further calls with the same `--json` add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
PROMPT_TOKENS, ANSWER_TOKENS = 256, 64
CONTEXT = 8192


class Point(NamedTuple):
    """GPUs, and how many of them each engine takes."""

    gpus: int
    parallel: int

    def __str__(self) -> str:
        return f"{self.gpus}" if self.parallel == 1 else f"{self.gpus}:{self.parallel}"


def point_of(word: str) -> Point:
    """`8` or `8:2`."""
    gpus, _, parallel = word.strip().partition(":")
    found = Point(int(gpus), int(parallel or 1))
    if found.gpus < 1 or found.parallel < 1 or found.gpus % found.parallel:
        sys.exit(f"`{word}` is no point: GPUS or GPUS:TENSOR_PARALLEL, the first a multiple")
    return found


# In a process of its own: its engines.


def serve(told: dict[str, Any]) -> None:
    """Open engines, then answer files as lines come; each reply is a line."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(**found: Any) -> None:
        replies.write(json.dumps(found) + "\n")
        replies.flush()

    try:
        from rowmill.bench.watch import WatchedFleet
        from rowmill.config import EngineConfig

        began = time.perf_counter()
        engine = EngineConfig.model_validate(told["engine"])
        fleet = WatchedFleet(engine, log=Path(told["folder"]) / "engine.log")
        limits, placed = fleet.limits, fleet.placement
        reply(
            start_s=round(time.perf_counter() - began, 2),
            about=limits.about,
            engines=len(placed.replicas),
            seen=[one.environment.get("CUDA_VISIBLE_DEVICES", "") for one in placed.replicas],
            placed=placed.reason,
            seats=limits.seats,
            kv_tokens=limits.kv_tokens,
        )
        for line in sys.stdin:
            reply(**answer(fleet, engine, json.loads(line)))
        fleet.shut()
    # The border of the process: the parent is told, whatever it was.
    except BaseException as error:
        traceback.print_exc()
        reply(failed=f"{type(error).__name__}: {error}"[:600])
    replies.flush()
    os._exit(0)


def answer(fleet: Any, engine: Any, task: dict[str, Any]) -> dict[str, Any]:
    """One run of a file, watched."""
    from rowmill.bench.answers import checked, rowmill_answers
    from rowmill.bench.records import Work
    from rowmill.bench.watch import Watch
    from rowmill.config import Job
    from rowmill.executors.local import run
    from rowmill.telemetry import Sample

    samples: list[Any] = []
    job = Job.model_validate(
        {
            "source": task["source"],
            "output": task["out"],
            "engine": engine.model_dump(),
            "raw": True,
            "sampling": {"temperature": 0},
            "plan": {"gpu": task["gpu"]},
        }
    )
    fleet.forget()
    watch = Watch(fleet)
    began = time.perf_counter()
    with watch:
        summary = run(
            job,
            listen=lambda event: samples.append(event) if isinstance(event, Sample) else None,
            warm=fleet,
        )
    seconds = time.perf_counter() - began
    work = Work(task["source"], task["rows"], task["prompt_tokens"], task["output_tokens"])
    found = checked(
        work, rowmill_answers(Path(task["out"]) / n for n in summary.results), seconds
    )
    last = samples[-1] if samples else None
    return {
        "seconds": round(seconds, 3),
        "invalid": found.invalid
        or ("" if summary.asked == task["rows"] else "not all were asked"),
        "rows": found.rows,
        "tokens": found.prompt_tokens + found.output_tokens,
        "empty_s": round(last.empty_s, 2) if last else None,
        "tail_s": round(last.tail_s, 2) if last else None,
        "tail_empty_s": round(last.tail_empty_s, 2) if last else None,
        "profile": watch.found(seconds),
        **(forecast(job) if task["is_last"] else {}),
    }


def forecast(job: Any) -> dict[str, Any]:
    """What `rowmill check` says of the file: it reads and tokenises it once more, so it is asked once a point."""
    from rowmill.rehearse import check

    said = check(job.model_copy(update={"output": job.output.model_copy(update={"path": ""})}))
    if len(said.forecasts) != 1:
        return {}
    (one,) = said.forecasts
    return {"forecast_s": round(one.seconds, 1), "ideal_s": round(one.bounds.ideal_s, 1)}


# The parent.


class Bench:
    """Points, one after the other."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        from shapes import make_model

        from rowmill.bench.words import Words

        self.options, self.folder = options, folder
        self.ends_at = time.monotonic() + options.max_seconds
        self.model = options.model or make_model(options.shape, folder, options.tokenizer)
        self.words = Words(self.model)
        self.found: list[dict[str, Any]] = []
        if options.json.exists():
            self.found = json.loads(options.json.read_text("utf-8"))["points"]

    def left_s(self) -> float:
        """Until it must be over."""
        return self.ends_at - time.monotonic()

    def save(self) -> None:
        """Write down what is known."""
        whole = {"points": self.found, "table": table(self.found)}
        draft = self.options.json.with_suffix(".new")
        draft.write_text(json.dumps(whole, indent=1), "utf-8")
        draft.replace(self.options.json)

    def point(self, point: Point) -> None:
        """Open its engines, warm them, and run its rounds."""
        from children import Child

        options = self.options
        place = self.folder / f"point-{point.gpus}-{point.parallel}"
        # A run that lies there would be found done.
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        told = {"engine": self._engine(point), "folder": str(place)}
        seen = (
            {}
            if options.dry
            else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(point.gpus)))}
        )
        result: dict[str, Any] = {
            "point": str(point),
            "gpus": point.gpus,
            "parallel": point.parallel,
            "shape": str(options.model or options.shape),
            "workload": options.workload,
            "rows_a_gpu": options.rows,
            "command": " ".join(sys.argv),
            "machine": machine(),
            "is_dry": options.dry,
            "runs": [],
        }
        self.found.append(result)
        child = Child("gpus.py", "engines", told, place, path=options.path, environment=seen)
        try:
            opened = child.answer(min(options.open_seconds, self.left_s()))
            result |= opened
            print(f"{point}: {opened}", flush=True)
            self.save()
            if "failed" not in opened:
                self._rounds(point, child, place, result)
        finally:
            child.end()
            self.save()

    def _rounds(self, point: Point, child: Any, place: Path, result: dict[str, Any]) -> None:
        took_s = 0.0
        for number in range(self.options.rounds + 1):
            rows = self.options.rows * point.gpus if number else 32 * point.gpus
            if self.left_s() < 5 + 1.1 * took_s:
                print(f"{point}, round {number}: no time is left", flush=True)
                return
            task = self._file(rows, 100 * number + point.gpus, place / f"rows-{number}.jsonl")
            task |= {"out": str(place / f"out-{number}"), "gpu": ""}
            task["is_last"] = number == self.options.rounds and not self.options.dry
            if self.options.gpu:
                task["gpu"] = f"{point.gpus}x{self.options.gpu}"
            found = child.ask(task, self.left_s())
            took_s = found.get("seconds", 0.0) if number else 0.0
            if number:
                result["runs"].append(found)
            words = found.get("failed") or found["invalid"] or f"{found['rows']:,} rows"
            print(f"{point}, round {number}: {found.get('seconds')} s, {words}", flush=True)
            Path(task["source"]).unlink()
            self.save()
            if "failed" in found:
                result["failed"] = found["failed"]
                return

    def _engine(self, point: Point) -> dict[str, Any]:
        engine: dict[str, Any] = {
            "name": "vllm",
            "model": str(self.model),
            "max_model_len": CONTEXT,
            "load_format": "dummy",
        }
        if point.parallel > 1:
            engine["tensor_parallel_size"] = point.parallel
        if self.options.dry:
            engine = {"name": "echo", "model": "", "tokenizer": str(self.model)}
            engine |= {"delay_s": 0.01, "seats": 64, "replicas": point.gpus // point.parallel}
        for word in self.options.set:
            name, _, value = word.partition("=")
            try:
                engine[name] = json.loads(value)
            except ValueError:
                engine[name] = value
        return {name: value for name, value in engine.items() if value != ""}

    def _file(self, rows: int, seed: int, path: Path) -> dict[str, Any]:
        """A file of the workload: its place, rows, and tokens in and out."""
        if self.options.workload == "mixed":
            from rowmill.bench.workloads import write_workload

            work = write_workload(
                "mixed", path, words=self.words, seed=seed, rows=rows, context=CONTEXT
            )
            prompt, output = work.prompt_tokens, work.output_tokens
        else:
            self._even(rows, seed, path)
            prompt, output = rows * PROMPT_TOKENS, rows * ANSWER_TOKENS
        return {
            "source": str(path),
            "rows": rows,
            "prompt_tokens": prompt,
            "output_tokens": output,
        }

    def _even(self, rows: int, seed: int, path: Path) -> None:
        import numpy as np

        draw = np.random.default_rng(seed)
        words = np.array(self.words.words)
        with path.open("w", encoding="ascii") as file:
            for number in range(rows):
                text = " ".join(draw.choice(words, PROMPT_TOKENS - self.words.extra))
                row = {"id": f"row-{number:07d}", "prompt": text}
                row |= {"max_tokens": ANSWER_TOKENS, "ignore_eos": True}
                file.write(json.dumps(row) + "\n")


def table(points: list[dict[str, Any]]) -> list[str]:
    """Markdown: a line a point; how many times a GPU's work is done is beside the least point of its kind."""
    lines = [
        "| GPUs | engines | start s | median s (range) | runs | rows/s | tokens/s | beside one | forecast s |"
        " empty seats | tail s | rowmill's CPU |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for point in points:
        runs = [run for run in point["runs"] if not run.get("failed") and not run["invalid"]]
        if not runs:
            lines.append(
                f"| {point['point']} | {point.get('engines', '')} | {point.get('start_s', '')} |"
                f" {point.get('failed', 'not run')[:60]} | 0 | | | | | | | |"
            )
            continue
        times = [run["seconds"] for run in runs]
        middle = statistics.median(times)
        run = runs[-1]
        cpu = run["profile"]["parent_cpu_s"] / run["seconds"]
        lines.append(
            f"| {point['point']} | {point['engines']} | {point['start_s']:.0f} |"
            f" {middle:.1f} ({min(times):.1f} to {max(times):.1f}) | {len(times)} |"
            f" {run['rows'] / middle:,.0f} | {run['tokens'] / middle:,.0f} |"
            f" {beside(point, points)} | {run.get('forecast_s', '')} | {run['empty_s']} |"
            f" {run['tail_s']} | {cpu:.2f} cores |"
        )
    return lines


def beside(point: dict[str, Any], points: list[dict[str, Any]]) -> str:
    """Rows a second beside those of the first point of the same shape and work."""

    def rate(one: dict[str, Any]) -> float:
        runs = [run for run in one["runs"] if not run.get("failed") and not run["invalid"]]
        return statistics.median(run["rows"] / run["seconds"] for run in runs) if runs else 0.0

    like = ("shape", "workload", "rows_a_gpu")
    first = next(one for one in points if all(one[key] == point[key] for key in like))
    return f"{rate(point) / rate(first):.2f}x of {first['point']}" if rate(first) else ""


def machine() -> dict[str, Any]:
    """What it ran on."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        told = ""
    return {"gpus": told.split("\n")[:-1], "cores": os.cpu_count(), "host": platform.machine()}


def read_options() -> argparse.Namespace:
    cli = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json")
    cli.add_argument("--model", type=Path, help="a model's folder, in place of a shape")
    cli.add_argument("--shape", default="7b")
    cli.add_argument("--points", default="1,2", help="GPUS or GPUS:TENSOR_PARALLEL, by commas")
    cli.add_argument("--workload", choices=("even", "mixed"), default="even")
    cli.add_argument("--rows", type=int, default=10_000, help="for each GPU")
    cli.add_argument("--rounds", type=int, default=3)
    cli.add_argument("--max-seconds", type=float, default=570.0)
    cli.add_argument(
        "--open-seconds", type=float, default=300.0, help="longest start of engines"
    )
    cli.add_argument("--gpu", default="", help="forecast for such GPUs, as `H200`; those here")
    cli.add_argument("--path", default="", help="a folder of packages, of vLLM")
    cli.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="of [engine]"
    )
    cli.add_argument(
        "--dry", action="store_true", help="echoes in place of engines: figures say nothing"
    )
    cli.add_argument("--folder", type=Path, help="where logs and files stay; a temporary one")
    cli.add_argument("--json", type=Path, default=Path("gpus.json"))
    cli.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    return cli.parse_args()


def main() -> None:
    options = read_options()
    if options.serve:
        serve(json.loads(options.serve.read_text("utf-8")))
        return
    if options.tokenizer is None and options.model is None:
        print("nothing was measured: give `--tokenizer DIR`, on a machine with GPUs and vLLM")
        return
    sys.path.insert(0, str(HERE.parent / "src"))
    points = [point_of(word) for word in options.points.split(",")]
    with tempfile.TemporaryDirectory(prefix="rowmill-gpus-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, folder)
        for point in points:
            bench.point(point)
        print("\n".join(table(bench.found)))


if __name__ == "__main__":
    main()
