"""`status`, `trace` and `export`: an output -> what is in it, in words or JSON. Nothing is changed there."""

from __future__ import annotations

from typing import Any

import click

from rowmill.cli.front import debug_option, json_option, wants_json
from rowmill.cli.shown import lines_of, plain
from rowmill.cli.voice import out, out_json, say

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
    required=True,
    metavar="FILE",
    help="File or object to write: `.jsonl`, `.csv` (also `.gz`, `.zst`), `.parquet` or `.arrow`.",
)
@json_option
@debug_option
def export(output: str, target: str) -> None:
    """Write the results of the run at OUT into one file."""
    from rowmill import report

    written = report.export(output, target)
    left = f", {written.not_done:,} without an outcome yet" if written.not_done else ""
    say(f"{written.rows:,} rows written to {target}{left}")
    if wants_json():
        out_json({"output": output, "target": target, "written": plain(written)})


def _show(found: Any) -> None:
    if wants_json():
        out_json(plain(found))
    else:
        for line in lines_of(found):
            out(line)
