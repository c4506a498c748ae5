"""`status`, `trace`, `export`: an output -> what is in it, in words or JSON; `doctor`: the same of a machine.

Promises: nothing is changed there.
"""

from __future__ import annotations

from typing import Any

import click

from rowmill.cli.front import debug_option, json_option, set_option, wants_json
from rowmill.cli.shown import lines_of, plain
from rowmill.cli.voice import out, out_json, say

SOME_FAILED = 4

output_argument = click.argument("output", metavar="OUT")


@click.command()
@output_argument
@json_option
@debug_option
def status(output: str) -> None:
    """Tell how far the run at OUT is.

    OUT may be a file of `run-batch`, and one of `vllm run-batch` or of OpenAI's Batch API, too.
    """
    from rowmill import report
    from rowmill.batch import batch_status, is_alone

    _show(batch_status(output) if is_alone(output) else report.status(output))


@click.command()
@output_argument
@click.argument("row", metavar="ROW_ID")
@json_option
@debug_option
def trace(output: str, row: str) -> None:
    """Tell the journey of one row.

    ROW_ID is the row's own id, or FILE:LINE.
    """
    from rowmill import report

    _show(report.trace(output, row))


@click.command()
@output_argument
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    help="File or object to write: `.jsonl`, `.csv` (also `.gz`, `.zst`), `.parquet` or `.arrow`.",
)
@click.option(
    "--to",
    metavar="ADDRESS",
    help="Vector store to load, as `sink` of a job file names it; what is there already is passed over.",
)
@set_option("With `--to`, a setting of `[sink]` that differs from the run's own.")
@json_option
@debug_option
def export(output: str, target: str | None, to: str | None, sets: tuple[str, ...]) -> int:
    """Write the results of the run at OUT into one file, or its vectors into a vector store."""
    if (target is None) == (to is None):
        raise click.UsageError("give either `-o FILE` or `--to ADDRESS`")  # noqa: EM101, TRY003 - click's own error
    if to is not None:
        return _load(output, to, sets)
    if sets:
        raise click.UsageError("`--set` goes with `--to ADDRESS`: a file has no such settings")  # noqa: EM101, TRY003 - click's own error
    assert target is not None
    from rowmill import report

    written = report.export(output, target)
    left = f", {written.not_done:,} without an outcome yet" if written.not_done else ""
    say(f"{written.rows:,} rows written to {target}{left}")
    if wants_json():
        out_json({"output": output, "target": target, "written": plain(written)})
    return 0


@click.command()
@click.argument("job", metavar="[JOB]", required=False)
@click.option(
    "-o", "--output", metavar="FOLDER", help="Where results are to go.  [default: here]"
)
@click.option("--engine", metavar="NAME", help="What is to answer, as for `run`.")
@click.option("--model", metavar="NAME", help="Its model, as for `run`.")
@set_option("Any setting of the job file, as for `run`.")
@json_option
@debug_option
def doctor(
    job: str | None,
    output: str | None,
    engine: str | None,
    model: str | None,
    sets: tuple[str, ...],
) -> int:
    """Tell what on this machine will not work, what will be slow, and what to do.

    JOB is a job file; its engine, model and output are looked at. Nothing is started and nothing is changed.
    Exit codes: 0 all is well; 2 something will not work; 4 something will be slow.
    """
    from rowmill.doctor import examine
    from rowmill.job_file import load_job

    flags = {"output.path": output, "engine.name": engine, "engine.model": model}
    settings = {name: value for name, value in flags.items() if value is not None}
    found = load_job(job, settings=settings, sets=sets)
    is_named = bool(job or engine or model or sets)
    examined = examine(found.engine if is_named else None, output=found.output.path or ".")
    _show(examined)
    return examined.exit_code


def _load(output: str, to: str, sets: tuple[str, ...]) -> int:
    from rowmill import report
    from rowmill.load.words import total_line

    loaded = report.load_run(output, to, sets=sets, tell=say)
    left = f"; {loaded.tasks_left:,} tasks have no commit yet" if loaded.tasks_left else ""
    say(f"{total_line(loaded.total, to)}{left}")
    for note in loaded.total.notes:
        say(f"  note: {note}")
    for refusal in loaded.total.told:
        say(f"  not there: {refusal.place}: {refusal.reason}")
    if wants_json():
        out_json({"output": output, "sink": to, "loaded": plain(loaded)})
    return SOME_FAILED if loaded.total.refused else 0


def _show(found: Any) -> None:
    if wants_json():
        out_json(plain(found))
    else:
        for line in lines_of(found):
            out(line)
