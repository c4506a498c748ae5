"""Job -> a script for `sbatch --array`: each element is one worker, as an index of an Indexed Job is.

Promises: elements that are preempted are queued again and go on; one drains before it is killed.
Knows nothing of: clusters; what they want is given by the long names of `sbatch`'s options.
Source: manual of sbatch, Slurm 24.05.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from rowmill.config import Job
from rowmill.errors import BadJob
from rowmill.kubernetes.indexed_job import job_text, name_of
from rowmill.kubernetes.needs import Needs

END = "ROWMILL_JOB_END"
DRAINED, DIED = 143, 3


def slurm_script(job: Job, needs: Needs) -> str:
    """The script, the job file in it.

    Raises:
        BadJob: an option that no line can hold.
    """
    return "\n".join(["#!/bin/bash", *_directives(job, needs), *_body(job)]) + "\n"


def _directives(job: Job, needs: Needs) -> Iterator[str]:
    asked = job.kubernetes
    at_once = asked.workers if asked.parallelism is None else max(1, asked.parallelism)
    throttle = f"%{at_once}" if at_once < asked.workers else ""
    found = {
        "job-name": name_of(job),
        "array": f"0-{asked.workers - 1}{throttle}",
        "cpus-per-task": f"{max(1, round(needs.cpu))}",
        "mem": f"{round(needs.memory_gib)}G",
        **({"gres": f"gpu:{needs.gpus}"} if needs.gpus else {}),
        # To the script and what it runs, so long before the end of its time.
        "signal": f"B:TERM@{needs.grace_s}",
        "requeue": "",
        "open-mode": "append",
        "output": f"{name_of(job)}-%A-%a.log",
        **asked.slurm,
    }
    mistakes = [
        f"`slurm.{name}`: an option's long name and one line of value"
        for name, value in found.items()
        if not re.fullmatch(r"[a-z][a-z-]*", name) or "\n" in value
    ]
    if mistakes:
        raise BadJob(where="[kubernetes]", mistakes=mistakes)
    return (
        f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
        for name, value in found.items()
    )


def _body(job: Job) -> Iterator[str]:
    text = job_text(job)
    yield "set -u"
    for name, value in job.kubernetes.environment.items():
        yield f"export {name}={shlex.quote(value)}"
    for name in job.kubernetes.secrets:
        yield f': "${{{name}:?set it before sbatch; it is not kept here}}"'
    yield 'job="${TMPDIR:-/tmp}/rowmill-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID.toml"'
    yield f"cat > \"$job\" <<'{END}'"
    yield text.rstrip("\n")
    yield END
    yield f"export ROWMILL_WORKERS={job.kubernetes.workers}"
    yield 'rowmill worker "$job" & worker=$!'
    # The shell hears the signal, and would keep it from its child.
    yield "trap 'kill -TERM \"$worker\"' TERM INT"
    yield 'wait "$worker"; code=$?'
    # A signal ends `wait`, not the worker.
    yield 'while kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done'
    yield f'if [ "$code" -eq {DRAINED} ] || [ "$code" -eq {DIED} ]; then'
    yield f'  if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {job.kubernetes.restarts} ]; then'
    yield '    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0'
    yield "  fi"
    yield "fi"
    yield 'rm -f "$job"'
    yield 'exit "$code"'
