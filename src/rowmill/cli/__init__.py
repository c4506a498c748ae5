"""Command line -> a job, a question, an exit code.

Promises: `--help` imports click and nothing else that weighs; a command imports what it needs when it runs.
Knows nothing of: how rows are read, asked or written.
"""

from __future__ import annotations

import click

from rowmill import __version__
from rowmill.cli.batch import run_batch
from rowmill.cli.bench import bench
from rowmill.cli.front import Front
from rowmill.cli.k8s import k8s
from rowmill.cli.look import doctor, export, status, trace
from rowmill.cli.report import report, watch
from rowmill.cli.slot import worker
from rowmill.cli.tune import tune
from rowmill.cli.voice import say
from rowmill.cli.work import check, retry, run

__all__ = ["main"]

REFUSED = 2
EPILOG = (
    "Exit codes: 0 all rows ok; 2 refused, nothing done; 3 died, run again to resume; "
    "4 done, some rows failed; 5 stopped early; 130 interrupted; 143 drained after SIGTERM; "
    "70 a bug of rowmill's own."
)


@click.group(
    cls=Front,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rowmill", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> int:
    """Batch LLM inference: rows in files in, rows with answers out, never losing a row."""
    if ctx.invoked_subcommand is not None:
        return 0
    say(ctx.get_help())
    return REFUSED


for command in (
    bench,
    check,
    doctor,
    export,
    k8s,
    report,
    retry,
    run,
    run_batch,
    status,
    trace,
    tune,
    watch,
    worker,
):
    main.add_command(command)
