"""`run` and `check`: input or job file, and flags -> a Job, and it done or rehearsed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rowmill.cli.front import (
    EXITS,
    any_setting_option,
    debug_option,
    json_option,
    set_option,
    wants_json,
)
from rowmill.cli.shown import lines_of, plain
from rowmill.cli.voice import out, out_json, say

if TYPE_CHECKING:
    from rowmill.config import EngineConfig, Job
    from rowmill.events import Listener, Summary

FLAGS = {
    "output": "output.path",
    "prompt": "prompt",
    "model": "engine.model",
    "engine": "engine.name",
    "url": "engine.url",
    "limit": "run.limit",
    "gpu_hour": "run.gpu_hour_price",
    "gpu": "plan.gpu",
    "executor": "run.executor",
    "address": "ray.address",
    "metrics_port": "telemetry.metrics_port",
}
"""The setting behind each flag."""


def job_options(command: Any) -> Any:
    """What makes a job: the inputs and the flags that `run` and `check` share."""
    parts = [
        click.argument("inputs", nargs=-1, metavar="INPUT..."),
        click.option(
            "-o", "--output", metavar="FOLDER", help="Where results go; a run there is resumed."
        ),
        click.option("--prompt", metavar="TEXT", help="Prompt with `{column}` in it."),
        click.option(
            "--model",
            metavar="NAME",
            help="Path, name on the Hugging Face hub (`vllm`), or name that the endpoint serves.",
        ),
        click.option(
            "--engine", metavar="NAME", help="`llamacpp`, `vllm`, `http`, `echo` or a plugin's."
        ),
        click.option("--url", help="OpenAI-compatible endpoint; makes `http` the engine."),
        click.option(
            "--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N rows."
        ),
        click.option(
            "--gpu-hour",
            type=click.FloatRange(min=0),
            metavar="PRICE",
            help="Price of one GPU for an hour; without a GPU, of the machine.",
        ),
        any_setting_option,
        json_option,
        debug_option,
    ]
    for part in reversed(parts):
        command = part(command)
    return command


@click.command()
@job_options
@click.option(
    "--append", is_flag=True, help="Files that the run at the output does not know join it."
)
@click.option(
    "--executor",
    metavar="NAME",
    help="`local`, or `ray`: workers on a cluster.  [default: local]",
)
@click.option(
    "--address", metavar="HOST:PORT", help="Head of the Ray cluster; `auto`: this machine's."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve `/metrics` for Prometheus on 127.0.0.1; 0: any free port.",
)
@click.option(
    "--join", default="", hidden=True, metavar="TOKEN", help="Share the run of this token."
)
def run(
    inputs: tuple[str, ...], append: bool, join: str, sets: tuple[str, ...], **flags: Any
) -> int:
    """Answer every row of INPUT... and write the results.

    INPUT is a file, glob or folder (JSON Lines, JSON, CSV, Parquet, Arrow; text also packed), or `-` for
    standard input. An argument that ends in `.toml` is a job file; flags and `--set` come before what it says.
    Relative paths in a job file start at the current directory.
    The same command again resumes.
    """
    job = read_job(inputs, sets, flags, needs=("source", "output"))

    from rowmill.executors import run as run_job

    if (
        not job.engine.model
        and job.engine.is_asked_for_texts
        and job.engine.name in ("", "llamacpp")
        and "url" not in job.engine.options
    ):
        say(
            "no model is named: the demo model SmolLM2-135M-Instruct answers; name one with `--model`"
        )
    return told(lambda listen: run_job(job, listen=listen, token=join, append=append))


def told(work: Callable[[Listener], Summary]) -> int:
    """Do the work, show its progress and its end; the exit code."""
    from rowmill.progress import open_progress, summary_lines

    with open_progress(say) as listen:
        summary = work(listen)
    for line in summary_lines(summary):
        say(line)
    if wants_json():
        out_json(summary_record(summary))
    return int(summary.exit_code)


@click.command()
@click.argument("output", metavar="OUT")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only failures of this kind; `violation`: answers that break their schema. Repeatable.",
)
@set_option("A setting that differs from the run's own.")
@json_option
@debug_option
def retry(output: str, kinds: tuple[str, ...], sets: tuple[str, ...]) -> int:
    """Ask the failed rows of the finished run at OUT again.

    The settings are those the run was started with. The last outcome of a row counts; earlier ones stay on the disk.
    """
    from rowmill.batch import is_alone, write_again
    from rowmill.errors import ConfigError
    from rowmill.executors.local import retry as retry_here
    from rowmill.executors.retrying import stored_job
    from rowmill.job_file import load_job
    from rowmill.report import run_of
    from rowmill.storage import open_storage

    if is_alone(output):
        raise ConfigError(reason=_without_run(output))
    output = run_of(output)
    settings = {**stored_job(open_storage(output)), "output.path": output}
    job = load_job(None, settings=settings, sets=sets, check_options=engine_mistakes)
    code = told(lambda listen: retry_here(job, kinds=kinds, listen=listen))
    write_again(output)
    return code


def _without_run(file: str) -> str:
    return (
        f"`{file}` is a batch file, and no run lies beside it that knows what was asked and how;"
        f" `rowmill run-batch -i INPUT -o {shlex.quote(file)} --model NAME --retry` asks again what it holds no answer to"
    )


@click.command()
@job_options
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N", help="Read only so many rows."
)
@click.option(
    "--gpu",
    metavar="NAME",
    help="GPU to forecast for, as `H200` or `2xL4`.  [default: those here]",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="HOURS",
    help="Tell how many GPUs it takes to be done by then.",
)
@click.option(
    "--fix",
    metavar="FOLDER",
    help="Write a mended copy of the files there and check that; INPUT stays as it is.",
)
def check(
    inputs: tuple[str, ...],
    sample: int | None,
    deadline: float | None,
    fix: str | None,
    sets: tuple[str, ...],
    **flags: Any,
) -> int:
    """Read, validate and measure INPUT... without asking anything.

    Takes what `run` takes, job files too, and tells what `run` would do and which rows are bad.
    """
    job = read_job(inputs, sets, flags, needs=("source",))
    if fix is not None:
        return _fix(job, fix, sample, run_command(inputs, fix, flags, sets))

    from rowmill.rehearse import check as rehearse

    report = rehearse(job, sample=sample, deadline_h=deadline)
    if wants_json():
        out_json(plain(report))
    else:
        for line in lines_of(report):
            out(line)
    return int(getattr(report, "exit_code", 0))


def _fix(job: Job, folder: str, sample: int | None, command: str) -> int:
    from rowmill.mend import fix

    fixed = fix(job, folder, sample=sample, command=command)
    if wants_json():
        out_json(fixed.record())
    else:
        for line in lines_of(fixed):
            out(line)
    return fixed.exit_code


def run_command(
    inputs: Sequence[str], folder: str, flags: dict[str, Any], sets: Sequence[str]
) -> str:
    """The command that runs over `folder` instead of the inputs, as a shell reads it."""
    words = ["rowmill", "run", *(name for name in inputs if name.endswith(".toml")), folder]
    for name, value in flags.items():
        if value is not None and name != "gpu":
            words += [f"--{name.replace('_', '-')}", str(value)]
    for value in sets:
        words += ["--set", value]
    told = shlex.join(words)
    return told if flags.get("output") else f"{told} -o OUT"


def read_job(
    inputs: Sequence[str], sets: Sequence[str], flags: dict[str, Any], *, needs: Sequence[str]
) -> Job:
    """The job that arguments and flags make.

    Raises:
        BadJob: with every mistake found.
    """
    from rowmill.errors import BadJob
    from rowmill.job_file import load_job

    files = [name for name in inputs if name.endswith(".toml")]
    sources = [name for name in inputs if not name.endswith(".toml")]
    if len(files) > 1:
        names = ", ".join(f"`{name}`" for name in files)
        raise BadJob(where="command line", mistakes=[f"one job file at a time; got {names}"])
    settings = {FLAGS[name]: value for name, value in flags.items() if value is not None}
    if sources:
        settings["source"] = sources
    return load_job(
        files[0] if files else None,
        settings=settings,
        sets=sets,
        needs=needs,
        check_options=engine_mistakes,
    )


def engine_mistakes(engine: EngineConfig) -> Sequence[str]:
    """Mistakes in the settings of the engine that a job names."""
    from rowmill.engines import check_options

    return check_options(engine)


def summary_record(summary: Summary) -> dict[str, Any]:
    """A summary as the object that `--json` writes."""
    record: dict[str, Any] = plain(summary)
    record["error"] = record.pop("failed")
    record["errors"] = [
        {"kind": kind, "sentence": sentence, "rows": rows}
        for kind, sentence, rows in summary.errors
    ]
    record["retries"] = dict(summary.retries)
    record["exit"] = EXITS.get(summary.exit_code, "bug")
    return record
