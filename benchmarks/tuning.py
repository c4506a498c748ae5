"""`rowmill tune` against a sweep: does it find at least 90 % of the best of six points, with at most four engine starts?
And what it foretells against what the run then takes.

    python benchmarks/tuning.py --model DIR [--rows 4000] [--part sweep|tune|run] [--out tuning.json]
    python benchmarks/tuning.py --shape 7b --tokenizer DIR --gpu     # on a GPU: a shape without weights
    python benchmarks/tuning.py --workloads --model DIR              # three workloads: said before, taken after

The sweep: two token budgets times three numbers of seats, each with an engine of its own, over the same rows; with `--gpu`,
where engines start slowly, an engine for each budget, which has as many rows at once as there would be seats. Then `tune`,
with the settings of the job left open; what it chose is measured over the same rows, and the best point of the sweep once
more beside it, but with `--gpu`: that machine is taken to be the same some minutes later.
All numbers go into FILE.json as they come, so that parts can run one by one (`--part`) and one that is ended has left what
it found; what was foretold is written there before the run begins.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from shapes import make_model

from rowmill.bench.words import Words
from rowmill.bench.workloads import write_workload
from rowmill.config import Job
from rowmill.engines.care import care_of
from rowmill.executors.local import run
from rowmill.tune import Ask, Patience, tune
from rowmill.tune.moves import with_engine
from rowmill.tune.sample import Sample
from rowmill.tune.sweep import SETTLE_S, Point, points_of, sampled, sweep
from rowmill.tune.trial import Trial

HERE = Path(__file__).resolve().parent
CPU_WAYS = {"max_num_batched_tokens": [512, 4096], "seats": [8, 32, 128]}
GPU_WAYS = {"max_num_batched_tokens": [8192, 32_768], "seats": [128, 512, 1024]}
THREE = ("mixed", "short", "prefixes")


def say(text: str) -> None:
    """To stderr, with the time."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def hear(event: object) -> None:
    """Notes of a run."""
    text = getattr(event, "text", "")
    if text:
        say(text)


def job_of(args: argparse.Namespace, model: Path, source: Path, output: Path) -> Job:
    """The job, settings of effort left open; of `echo` a row takes 0.1 s, whatever else the machine does."""
    if args.engine == "echo":
        own = {"name": "echo", "seats": 32, "delay_s": 0.1, "tokenizer": args.tokenizer}
        return Job.model_validate(
            {
                "source": str(source),
                "output": str(output),
                "engine": {**own, "answer": "numbers"},
                "raw": True,
                "sampling": {"temperature": 0},
            }
        )
    engine: dict[str, Any] = {
        "name": "vllm",
        "model": str(model),
        "max_model_len": args.context,
    }
    engine["enforce_eager"] = True  # starts a minute sooner; the same for all
    if args.shape:
        engine["load_format"] = "dummy"
    for text in args.engine_set:
        name, _, value = text.partition("=")
        try:
            engine[name] = json.loads(value)
        except ValueError:
            engine[name] = value
    return Job.model_validate(
        {
            "source": str(source),
            "output": str(output),
            "engine": engine,
            "raw": True,
            "sampling": {"temperature": 0},
            "run": {"gpu_hour_price": args.gpu_hour},
        }
    )


def swept(
    args: argparse.Namespace, job: Job, points: list[dict[str, Any]], keep: Any = None
) -> list[Any]:
    """Each point with its rate; `keep` has those there are after each."""
    patience = Patience(most_s=args.seconds)
    with tempfile.TemporaryDirectory() as spool:
        opened, sample, _ = sampled(job, Path(spool))
        found = []
        measure = held if args.gpu and len(points) > 1 else sweep
        for point in measure(opened.words.job, sample, points, patience, tell=say):
            rate = point.measured.rate if point.measured else None
            say(f"  {point.changes}: {rate.mean if rate else point.failed}")
            found.append(
                {
                    "settings": point.changes,
                    "rate": rate.mean if rate else 0.0,
                    "share": rate.share if rate else None,
                    "tokens_s": point.measured.tokens_s if point.measured else 0.0,
                    "start_s": round(point.start_s, 1),
                    "failed": point.failed,
                }
            )
            if keep is not None:
                keep(found)
    return found


def held(
    job: Job, sample: Sample, points: list[dict[str, Any]], patience: Patience, *, tell: Any
) -> Iterator[Point]:
    """The same, with one engine for the points that differ in their seats alone: it is given so many rows at once."""
    by_rest: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        rest = {name: value for name, value in point.items() if name != "seats"}
        by_rest.setdefault(json.dumps(rest), []).append(point)
    for alike in by_rest.values():
        widest = max(alike, key=lambda point: point["seats"])
        with tempfile.TemporaryDirectory(prefix="rowmill-tuning-") as folder:
            care = msgspec.structs.replace(care_of(job.run), tell=tell)
            log = Path(folder) / "engine.log"
            trial = Trial(
                with_engine(job, widest).engine, log=log, care=care, put=lambda _: None
            )
            try:
                limits = trial.start()
                for point in sorted(alike, key=lambda point: -point["seats"]):
                    rows = point["seats"] * limits.replicas
                    measured = trial.measure(sample.stream(), rows, patience)
                    trial.settle(SETTLE_S)
                    yield Point(changes=point, measured=measured, start_s=trial.start_s)
            finally:
                trial.close()


def tuned(args: argparse.Namespace, job: Job) -> dict[str, Any]:
    """What `tune` finds, and what it foretells."""
    began = time.monotonic()
    found = tune(
        job,
        Ask(
            patience=Patience(most_s=args.seconds), most_starts=args.starts, most_s=args.most_s
        ),
        listen=hear,
    )
    for line in found.lines():
        print(line)
    assert found.estimate is not None
    return {
        "starts": found.starts,
        "chosen": {name: value for name, (value, _) in found.chosen.items()},
        "took_s": round(time.monotonic() - began, 1),
        "rows_kept": found.rows_kept,
        "said_s": round(found.estimate.seconds, 1),
        "low_s": round(found.estimate.low_s, 1),
        "high_s": round(found.estimate.high_s, 1),
    }


def compare(args: argparse.Namespace, model: Path, place: Path, keep: Any) -> None:
    """A sweep, and `tune` beside it."""
    source = place / "rows.jsonl"
    words = Words(args.tokenizer or model)
    write_workload("mixed", source, words=words, seed=1, rows=args.rows, context=args.context)
    job = job_of(args, model, source, place / "out")
    if args.part in ("all", "sweep"):
        points = points_of(GPU_WAYS if args.gpu else CPU_WAYS)
        swept(args, job, points, lambda found: keep("sweep", found))
    if args.part in ("all", "tune"):
        found = tuned(args, job)
        keep("tune", found)
        best = max(
            args.found.get("sweep", [{"rate": 0.0, "settings": {}}]),
            key=lambda one: one["rate"],
        )
        # Once more side by side, as a machine that others use is not the same minutes later.
        again = [] if args.gpu else swept(args, job, [best["settings"]])
        chosen = swept(args, job, [found["chosen"]])
        keep("beside", [*again, *chosen])
        against = again[0]["rate"] if again else best["rate"]
        ratio = chosen[0]["rate"] / max(against, 1e-9)
        keep("ratio", round(ratio, 3))
        print(f"tuned is {ratio:.1%} of the best of the sweep; {found['starts']} starts")


def foretold(args: argparse.Namespace, model: Path, place: Path, keep: Any) -> None:
    """Three workloads: what is said after a probe of one start, then what the run takes."""
    words = Words(args.tokenizer or model)
    for name in args.only.split(",") if args.only else THREE:
        source = place / f"{name}.jsonl"
        rows = max(64, args.rows // (8 if name == "prefixes" and args.engine != "echo" else 1))
        write_workload(name, source, words=words, seed=2, rows=rows, context=args.context)
        job = job_of(args, model, source, place / f"out-{name}")
        found = tuned(args, job)
        keep(name, found)  # written down before the run
        engine = job.engine.model_copy(update={})
        tree = {**engine.model_dump(), **found["chosen"]}
        after = job.model_copy(update={"engine": type(engine).model_validate(tree)})
        summary = run(after, listen=hear)
        error = found["said_s"] / summary.seconds - 1
        is_inside = found["low_s"] <= summary.seconds <= found["high_s"]
        keep(
            name,
            {
                **found,
                "took_run_s": round(summary.seconds, 1),
                "error": round(error, 3),
                "is_inside": is_inside,
            },
        )
        print(
            f"{name}: said {found['said_s']} s ({found['low_s']} to {found['high_s']}), took"
            f" {summary.seconds:.1f} s: {error:+.1%}, {'inside' if is_inside else 'OUTSIDE'}"
        )


def asked() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="folder of a model")
    parser.add_argument("--shape", default="", help="0.5b, 1.5b, 7b: a Qwen2.5 without weights")
    parser.add_argument("--tokenizer", default="", help="folder with tokenizer.json")
    parser.add_argument("--engine", choices=("vllm", "echo"), default="vllm")
    parser.add_argument("--gpu", action="store_true", help="the sweep of a large GPU")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=30.0, help="a setting, at most")
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--most-s", type=float, default=900.0)
    parser.add_argument("--gpu-hour", type=float, default=None)
    parser.add_argument("--engine-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--part", choices=("all", "sweep", "tune"), default="all")
    parser.add_argument("--workloads", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="")
    return parser.parse_args()


def main() -> None:
    """Measure."""
    # A script's folder comes first, and this one has a `vllm.py`: engines are to find the library.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != HERE]
    args = asked()
    out = Path(args.out) if args.out else None
    args.found = json.loads(out.read_text()) if out and out.exists() else {}

    def keep(name: str, value: Any) -> None:
        args.found[name] = value
        if out:
            out.write_text(json.dumps(args.found, indent=1))

    with tempfile.TemporaryDirectory(prefix="rowmill-tuning-") as folder:
        place = Path(folder)
        model = Path(args.model)
        if args.shape:
            model = make_model(args.shape, place, Path(args.tokenizer))
        (foretold if args.workloads else compare)(args, model, place, keep)


if __name__ == "__main__":
    main()
