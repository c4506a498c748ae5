"""`report` and `watch`: an output -> a page that tells of its run, in a file or live."""

from __future__ import annotations

import click

from rowmill.cli.front import debug_option, json_option, wants_json
from rowmill.cli.shown import plain
from rowmill.cli.voice import out, out_json, say

STDOUT = "-"


@click.command()
@click.argument("output", metavar="OUT")
@click.option("--against", default="", metavar="RUN", help="Another run, put beside it.")
@click.option(
    "-o",
    "--output",
    "target",
    default="",
    metavar="FILE",
    help="File or object to write; `-`: stdout.  [default: OUT/report.html]",
)
@json_option
@debug_option
def report(output: str, against: str, target: str) -> None:
    """Write a report of the run at OUT: one HTML file that needs no network.

    OUT may be a run that is still going on; what is there is told.
    """
    from rowmill.report.writing import report_html, write_report

    if target == STDOUT:
        if wants_json():
            raise click.UsageError("`-o -` and `--json` both write to stdout; give one of them")  # noqa: EM101, TRY003 - click's own error
        out(report_html(output, against=against))
        return
    written = write_report(output, against=against, target=target)
    say(f"report written to {written.path} ({written.num_bytes / 1000:,.0f} KB)")
    if wants_json():
        out_json({"output": output, "against": against, "report": plain(written)})


@click.command()
@click.argument("output", metavar="OUT")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of 127.0.0.1; 0: a free one.  [default: 0]",
)
@json_option
@debug_option
def watch(output: str, port: int) -> None:
    """Show the report of the run at OUT live, on a port of this machine, until Ctrl-C.

    Nothing at OUT is changed; a run that has ended can be watched too.
    """
    from rowmill.report.watching import Watch

    try:
        watching = Watch(output, port)
    except OSError as error:
        raise click.UsageError(f"port {port}: {error.strerror}") from error  # noqa: EM102, TRY003 - click's own error
    if wants_json():
        out_json({"output": output, "address": watching.address})
    else:
        out(watching.address)
    say("Ctrl-C ends it; the run itself goes on")
    try:
        watching.serve()
    except KeyboardInterrupt:
        say("no longer watched")
