"""`run-batch`: a batch file in, a batch file out; takes the flags of `vllm run-batch`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rowmill.cli.front import debug_option, json_option, wants_json
from rowmill.cli.voice import out_json, say

if TYPE_CHECKING:
    from rowmill.batch import Target
    from rowmill.config import Job

NOT_OURS = {
    "output_tmp_dir": "files are written beside their own names",
    "enable_metrics": "`rowmill status` tells how far a batch is",
    "host": "there is no server",
    "port": "there is no server",
    "disable_log_stats": "counters of the run come out of them",
    "disable_log_requests": "requests are not logged",
    "uvicorn_log_level": "there is no server",
}
"""Flags of `vllm run-batch` that change nothing here -> why."""
RENAMED = {"max_num_seqs": "seats"}


@click.command(
    "run-batch", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.option(
    "-i",
    "--input-file",
    "inputs",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Batch file, glob or folder, also in a store: JSON Lines, also packed, or Parquet. Repeatable.",
)
@click.option(
    "-o",
    "--output-file",
    "output",
    required=True,
    metavar="FILE",
    help="Where the answers go, a `.jsonl` (also `.gz`, `.zst`) or `.parquet`, also `s3://BUCKET/NAME`;"
    " the run lies beside it in FILE.run.",
)
@click.option("--model", metavar="NAME", default="", help="As for `run`.")
@click.option(
    "--served-model-name",
    "names",
    multiple=True,
    metavar="NAME",
    help="What lines may call the model beside its own name; bodies call it so too. Repeatable.",
)
@click.option(
    "--engine",
    metavar="NAME",
    default="",
    help="None: `http` with `--url`, `llamacpp` for a `.gguf`, else `vllm`.",
)
@click.option(
    "--url",
    default="",
    help="OpenAI-compatible endpoint that answers, or several parted by commas.",
)
@click.option(
    "--dialect",
    type=click.Choice(["vllm", "openai"]),
    default="vllm",
    help="`openai`: lines that failed go into a file of their own.",
)
@click.option(
    "--errors",
    metavar="FILE",
    default="",
    help="That file. None: OUT with `.errors` before its suffix.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Any setting of a job file. Repeatable.",
)
@json_option
@debug_option
@click.pass_context
def run_batch(ctx: click.Context, /, **given: Any) -> int:
    """Answer the lines of a batch file, as `vllm run-batch` does.

    Flags that are not listed are settings of the engine, as `--max-model-len 4096`.
    A line that is bad is an error in the output and stops no other. The same command again resumes.
    """
    job = _job(given, _engine_flags(ctx.args))
    target = _target(given, job)
    from rowmill.batch import check_target

    check_target(target, job.source)
    summary, written = _done(job, target)
    if wants_json():
        from rowmill.cli.work import summary_record

        out_json({**summary_record(summary), "files": written.files if written else []})
    return int(summary.exit_code)


def _done(job: Job, target: Target) -> tuple[Any, Any]:
    """Run the job and write its files. Returns: how the run ended, and what was written, if it is whole."""
    from rowmill.batch import folder_of, write_batch, write_target
    from rowmill.executors.local import run
    from rowmill.progress import open_progress, summary_lines
    from rowmill.storage import open_storage

    with open_progress(say) as listen:
        summary = run(job, listen=listen)
    for line in summary_lines(summary):
        say(line)
    folder = folder_of(target.file)
    write_target(open_storage(folder), target)
    written = write_batch(folder, target) if not summary.not_done else None
    if written is not None:
        say(f"  written: {' and '.join(written.files)}")
    return summary, written


def _engine_flags(words: Sequence[str]) -> dict[str, Any]:
    """Flags of the engine, `--max-model-len 512` or `--max-model-len=512`; one without a value is a switch."""
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            found[name] = _value(value) if equals else True
            name = "" if equals else name
        elif name:
            found[name], name = _value(word), ""
        else:
            raise click.UsageError(f"unexpected argument `{word}`")  # noqa: EM102, TRY003 - click's own error
    return dict(_settings(found))


def _settings(found: dict[str, Any]) -> Any:
    for name, value in found.items():
        if name in NOT_OURS:
            say(f"rowmill: `--{name.replace('_', '-')}` changes nothing: {NOT_OURS[name]}")
        elif name.startswith("no_") and value is True:
            yield f"engine.{name[3:]}", False
        else:
            yield f"engine.{RENAMED.get(name, name)}", value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _job(given: dict[str, Any], engine_flags: dict[str, Any]) -> Job:
    from rowmill.batch import folder_of
    from rowmill.cli.work import engine_mistakes
    from rowmill.job_file import load_job

    model, url = given["model"], given["url"]
    name = given["engine"] or (
        "http" if url else "llamacpp" if model.endswith(".gguf") else "vllm"
    )
    settings: dict[str, Any] = {
        "source": list(given["inputs"]),
        "output.path": folder_of(given["output"]),
        # Lines of the file are told one by one, however many are bad.
        "run.max_failed_share": 1.0,
        "validate.first_rows": 0,
        "validate.model_names": list(given["names"]),
        "engine.name": name,
        "engine.model": model,
        **engine_flags,
    }
    if name == "http":
        # On the wire the model has the name under which it is served.
        settings |= {"engine.model": (*given["names"], model)[0], "engine.keep_body": True}
        settings["validate.model_names"] = [*given["names"], *([model] if model else [])]
    if url:
        settings["engine.url"] = url
    return load_job(
        None,
        settings=settings,
        sets=given["sets"],
        needs=("source", "output"),
        check_options=engine_mistakes,
    )


def _target(given: dict[str, Any], job: Job) -> Target:
    from rowmill.batch import Target, errors_of

    is_apart = given["dialect"] == "openai"
    return Target(
        file=given["output"],
        errors=given["errors"] or (errors_of(given["output"]) if is_apart else ""),
        dialect=given["dialect"],
        model=(*given["names"], job.engine.model)[0],
    )
