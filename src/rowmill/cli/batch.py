"""`run-batch`: a batch file in, a batch file out; takes the flags of `vllm run-batch`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowmill.cli.front import EXITS, debug_option, json_option, set_option, wants_json
from rowmill.cli.voice import out_json, say

if TYPE_CHECKING:
    from rowmill.batch import Place, Target
    from rowmill.config import Job

NOT_OURS = {
    "enable_metrics": "`rowmill status` tells how far a batch is",
    "host": "there is no server",
    "port": "there is no server",
    "disable_log_stats": "counters of the run come out of them",
    "disable_log_requests": "requests are not logged",
    "uvicorn_log_level": "there is no server",
}
"""Flags of `vllm run-batch` that change nothing here -> why."""
OUTPUTS = ("output", "errors")
SOME_FAILED = 4
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
    help="Batch file, glob or folder, also in a store, or a URL: JSON Lines, also packed, or Parquet. Repeatable.",
)
@click.option(
    "-o",
    "--output-file",
    "output",
    required=True,
    metavar="FILE",
    help="Where the answers go, a `.jsonl` (also `.gz`, `.zst`) or `.parquet`, also `s3://BUCKET/NAME`;"
    " the run lies beside it in FILE.run. To a URL it goes by PUT.",
)
@click.option(
    "--output-tmp-dir",
    "folder",
    metavar="FOLDER",
    default=".",
    show_default=True,
    help="Where a file that goes to a URL lies, and its run.",
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
    "--retry",
    "is_again",
    is_flag=True,
    help="Ask only what the file of `-o` holds no answer to, whether vLLM, OpenAI or rowmill made it.",
)
@set_option("Any setting of a job file.")
@json_option
@debug_option
@click.pass_context
def run_batch(ctx: click.Context, /, **given: Any) -> int:
    """Answer the lines of a batch file, as `vllm run-batch` does.

    Flags that are not listed are settings of the engine, as `--max-model-len 4096`.
    A line that is bad is an error in the output and stops no other. The same command again resumes.
    """
    from rowmill.batch import check_alone, check_target, check_urls, download, upload

    flags = _engine_flags(ctx.args)
    here, inputs, outputs = _here(given)
    check_urls(inputs, outputs)
    job = _job(here, flags)
    target = _target(here, job)
    if here["is_again"]:
        check_alone(target)
    check_target(target, job.source)
    for place in inputs:
        download(place, say)
    answer = _ask_again if here["is_again"] else _ask
    code, files, record = answer(here, flags, job, target)
    for place in outputs:
        if place.file in files:
            upload(place, say)
            say(f"  sent: {place.file}")
    if wants_json():
        out_json({**record, "files": files, "exit": EXITS[code]})
    return code


def _here(given: dict[str, Any]) -> tuple[dict[str, Any], list[Place], list[Place]]:
    """What was given with files of this machine for URLs, and those of the input and of the output."""
    from rowmill.batch import input_place, is_url, output_place

    outputs = [output_place(given[n], given["folder"]) for n in OUTPUTS if is_url(given[n])]
    file_of = {place.url: place.file for place in outputs}
    here = given | {name: file_of.get(given[name], given[name]) for name in OUTPUTS}
    inputs = [
        input_place(url, number, here["output"])
        for number, url in enumerate(given["inputs"])
        if is_url(url)
    ]
    file_of = {place.url: place.file for place in inputs}
    here["inputs"] = [file_of.get(name, name) for name in given["inputs"]]
    return here, inputs, outputs


Ended = tuple[int, list[str], dict[str, Any]]
"""Exit code, files that were written, and what `--json` tells."""


def _ask(given: dict[str, Any], flags: dict[str, Any], job: Job, target: Target) -> Ended:
    from rowmill.cli.work import summary_record

    summary, written = _done(job, target)
    files = written.files if written is not None else []
    if files:
        say(f"  written: {' and '.join(files)}")
    return int(summary.exit_code), files, summary_record(summary)


def _ask_again(given: dict[str, Any], flags: dict[str, Any], job: Job, target: Target) -> Ended:
    """Ask what the files hold no answer to, in a run that is gone when the answers are in their places."""
    from msgspec.structs import replace

    from rowmill.batch import drop, errors_of, num_failed, put_back, select
    from rowmill.cli.work import summary_record

    again = select(job.source, target, job.validate_.id_column)
    say(f"retry   {again.rows:,} rows are asked again, {again.kept:,} are answered")
    made: list[str] = []
    record: dict[str, Any] = {"asked": 0, "kept": again.kept}
    if again.rows:
        errors = errors_of(again.target) if target.errors else ""
        asked = {**given, "inputs": [again.lines], "output": again.target}
        there = replace(target, file=again.target, errors=errors)
        summary, written = _done(_job(asked, flags), there, stays=False)
        record = summary_record(summary) | {"kept": again.kept}
        if written is None:
            return int(summary.exit_code), [], record
        made = [there.file, there.errors]
    if again.is_needed:
        put_back(again, target, made)
    drop(again)
    failed = num_failed(target)
    files = [target.file, *([target.errors] if failed and target.errors else [])]
    say(f"  written: {' and '.join(files)}; {failed:,} lines hold no answer")
    return SOME_FAILED if failed else 0, files, record


def _done(job: Job, target: Target, *, stays: bool = True) -> tuple[Any, Any]:
    """Run the job and write its files.

    Args:
        job: with the folder beside the file as its output.
        target: the files.
        stays: whether the run is there for people to look at once it is whole.

    Returns: how the run ended, and what was written, if it is whole.
    """
    from msgspec.structs import replace

    from rowmill.batch import folder_of, write_batch, write_target
    from rowmill.executors.local import run
    from rowmill.progress import open_progress, summary_lines
    from rowmill.storage import open_storage

    with open_progress(say) as listen:
        summary = run(job, listen=listen)
    if not (stays or summary.not_done):
        summary = replace(summary, output="", results=[])
    for line in summary_lines(summary):
        say(line)
    folder = folder_of(target.file)
    write_target(open_storage(folder), target)
    return summary, write_batch(folder, target) if not summary.not_done else None


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

    # A file of errors beside the answers tells whose dialect they are in.
    is_found = given["is_again"] and Path(errors_of(given["output"])).is_file()
    is_apart = given["dialect"] == "openai" or is_found
    return Target(
        file=given["output"],
        errors=given["errors"] or (errors_of(given["output"]) if is_apart else ""),
        dialect="openai" if is_apart else "vllm",
        model=(*given["names"], job.engine.model)[0],
    )
