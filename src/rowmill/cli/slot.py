"""`worker`: what a pod, or a task of a Slurm array, runs: one of several that share a run."""

from __future__ import annotations

from typing import Any

import click

from rowmill.cli.work import job_options, read_job, told

SOME_FAILED = 4


@click.command(hidden=True)
@job_options
@click.option(
    "--index",
    type=click.IntRange(min=0),
    required=True,
    envvar=["JOB_COMPLETION_INDEX", "SLURM_ARRAY_TASK_ID"],
    help="Number of this worker.",
)
@click.option(
    "--of",
    type=click.IntRange(min=1),
    required=True,
    envvar=["ROWMILL_WORKERS", "SLURM_ARRAY_TASK_COUNT"],
    help="How many there are.",
)
@click.option(
    "--token",
    required=True,
    envvar=["ROWMILL_TOKEN", "SLURM_ARRAY_JOB_ID"],
    help="What all workers of one start have in common.",
)
def worker(
    inputs: tuple[str, ...],
    sets: tuple[str, ...],
    index: int,
    of: int,
    token: str,
    **flags: Any,
) -> int:
    """Work on the run of a job together with others: tasks `i` with `i mod OF = INDEX` first, then any.

    Ends with 0 once no task is left to claim, whatever became of rows: what is committed is done.
    """
    job = read_job(inputs, sets, flags, needs=("source", "output"))

    from rowmill.executors.local import run as run_here
    from rowmill.executors.slots import PATIENCE_LEASES, Slot

    slot = Slot(index=index % of, of=of, patience_s=PATIENCE_LEASES * job.run.lease_s)
    code = told(lambda listen: run_here(job, listen=listen, token=token, slot=slot))
    return 0 if code == SOME_FAILED else code
