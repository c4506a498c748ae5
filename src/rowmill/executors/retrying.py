"""A finished run -> which of its failed rows are asked again, task by task.

Promises: a retry that was interrupted is gone on with by the same command; another selection is a further retry.
Knows nothing of: engines.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import ConfigError, RunMismatch
from rowmill.journal import (
    VIOLATION,
    Again,
    Commit,
    generations,
    read_commits,
    segments_of,
)
from rowmill.record import Record, read_run
from rowmill.retries import RetryPlan, differing, read_retries
from rowmill.storage import Storage
from rowmill.write.segments import read_outcomes


def stored_job(storage: Storage) -> dict[str, Any]:
    """The job of the run that lies here, as it was given.

    Raises:
        ConfigError: there is none.
    """
    found = read_run(storage)
    if found is None:
        raise ConfigError(
            reason=f"`{storage.url}` holds no run; name the folder that `-o` was given"
        )
    return found[0].job


def check_ids(record: Record, job: Job) -> None:
    """See that a retry takes the ids of rows from where the run takes them: all results, and vector stores, know rows by them.

    Raises:
        RunMismatch: it names another column.
    """
    ours, asked = record.identity.get("validate.id_column") or "", job.validate_.id_column
    if asked != ours:
        found = f"`{asked}`" if asked else "unset"
        kept = f"`{ours}`" if ours else "unset"
        reason = (
            f"`{job.output.path}`: `validate.id_column` is {found}, and {kept} in the run; ids are those of the run,"
            " whoever asks its rows: leave it as it was, or take another `-o` for a new run"
        )
        raise RunMismatch(reason=reason, keys=["validate.id_column"])


def plan_retry(
    storage: Storage, kinds: tuple[str, ...], job: dict[str, Any]
) -> dict[int, Again]:
    """Tasks with rows to ask again.

    Args:
        job: as it is asked with this time; what differs is noted.

    Raises:
        ConfigError: rows were never asked yet, so a plain `run` comes first.
    """
    commits = read_commits(storage)
    found = read_run(storage)
    if found is None or len(commits) < found[1].num_tasks:
        reason = f"`{storage.url}` is not answered to its end; run the job first, then retry what failed"
        raise ConfigError(reason=reason)
    known = {shape.partition("\t")[0] for c in commits.values() for shape in c.counts.errors}
    if any(commit.counts.violations for commit in commits.values()):
        known.add(VIOLATION)
    for kind in kinds:
        if kind not in known and "other" not in known:
            raise ConfigError(reason=_no_such_failure(kind, sorted(known)))
    last = _last_plan(storage)
    is_open = last is not None and last.kinds == kinds and _is_open(storage, last)
    planned = set(last.tasks) if last is not None and is_open else set()
    tasks = [
        task
        for task, commit in commits.items()
        if task not in planned and _has_failed(storage, commit, kinds)
    ]
    if last is not None and is_open:
        if tasks:  # of files that joined since
            last = msgspec.structs.replace(last, tasks=[*last.tasks, *tasks])
            storage.replace(rundir.retry(last.number), msgspec.json.encode(last))
        return _again(storage, last)
    plan = RetryPlan(
        number=last.number + 1 if last else 1,
        kinds=kinds,
        tasks=tasks,
        left={task: names for task in tasks if (names := _uncommitted(storage, task))},
        settings=differing(found[0].job, job),
    )
    if tasks:
        storage.replace(rundir.retry(plan.number), msgspec.json.encode(plan))
    return _again(storage, plan)


def _no_such_failure(kind: str, known: list[str]) -> str:
    there = ", ".join(f"`{name}`" for name in known)
    return f"no row of this run failed with kind `{kind}`; " + (
        f"there are {there}" if known else "none failed at all"
    )


def _again(storage: Storage, plan: RetryPlan) -> dict[int, Again]:
    commits = read_commits(storage)
    todo = [t for t in plan.tasks if storage.size(rundir.commit(t, plan.number)) is None]
    return {
        t: Again(commits[t], plan.number, plan.kinds, tuple(plan.left.get(t, ()))) for t in todo
    }


def _uncommitted(storage: Storage, task: int) -> list[str]:
    """Segments of a task that no commit names: a retry that was stopped left them."""
    named = {ref.name for _, commit in generations(storage, task) for ref in commit.segments}
    return [name for name in segments_of(storage, task) if name not in named]


def _last_plan(storage: Storage) -> RetryPlan | None:
    return next(reversed(read_retries(storage)), None)


def _is_open(storage: Storage, plan: RetryPlan) -> bool:
    return any(storage.size(rundir.commit(t, plan.number)) is None for t in plan.tasks)


def _has_failed(storage: Storage, commit: Commit, kinds: tuple[str, ...]) -> bool:
    if not (commit.counts.failed or (VIOLATION in kinds and commit.counts.violations)):
        return False
    again = Again(before=commit, retry=0, kinds=kinds)
    parts = (part for ref in commit.segments for part in read_outcomes(storage, ref))
    return any(again.is_asked_again(outcome) for part in parts for outcome in part)
