"""A job on this machine: one worker, its engine in a child process.

Promises: what is refused changes nothing; what is answered is on the disk before it counts; a stop of any kind
leaves a run that the same command goes on with.
Knows nothing of: what rows say.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from rowmill import rundir
from rowmill.ahead import Ahead, publishing_ahead
from rowmill.config import Job
from rowmill.engines.warm import WarmFleet
from rowmill.errors import ConfigError, InputChanged
from rowmill.events import Forecast, Listener, Note, Published, Summary
from rowmill.executors.claims import WAIT_S
from rowmill.executors.lots import clear_lots, with_lots
from rowmill.executors.opening import (
    Opened,
    new_token,
    open_run,
    stations_of,
)
from rowmill.executors.placing import check_places
from rowmill.executors.retrying import check_ids, plan_retry
from rowmill.executors.sinking import check_sink, loading, with_loaded
from rowmill.executors.slots import ALONE, Slot, pod_name
from rowmill.executors.stopping import Stop, StoppedNow
from rowmill.executors.traces import Traces, remove_strange, tidy
from rowmill.executors.worker import Worker
from rowmill.flow import calm_interpreter
from rowmill.journal import Again, Counts, read_commits
from rowmill.leases import Leases, claim_output
from rowmill.pipeline import TaskRows
from rowmill.publish import Done, publish
from rowmill.read.source import changed
from rowmill.record import read_run
from rowmill.storage import Storage, open_storage
from rowmill.write.form import Form, answer_form_of, form_of

MAX_SHOWN_ERRORS = 50


class Work(Protocol):
    """What has been done, by a worker or by many, for the summary."""

    @property
    def total(self) -> int:
        """Rows of the run as far as known."""
        ...

    @property
    def seconds(self) -> float:
        """From the first row to the last outcome."""
        ...

    @property
    def engine_start_s(self) -> float:
        """How long engines took to start."""
        ...

    @property
    def cost(self) -> float:
        """What the run has cost so far."""
        ...

    @property
    def new_counts(self) -> Counts:
        """Counts over the outcomes of this start."""
        ...

    @property
    def retries(self) -> list[tuple[str, int]]:
        """Requests of this start that were made again: (cause, number)."""
        ...

    def all_counts(self) -> Counts:
        """Counts over the whole run as far as known."""
        ...


def run(
    job: Job,
    *,
    listen: Listener | None = None,
    token: str = "",
    append: bool = False,
    warm: WarmFleet | None = None,
    slot: Slot = ALONE,
) -> Summary:
    """Run a job to its end, or to a stop that can be resumed.

    Args:
        append: files that the run at the output does not know join it; only their rows are asked.
        listen: told of progress, from threads of the run.
        warm: engines of the job's settings that are open already; they stay open.
        slot: which of several workers with `token` this one is.
        token: of a run that lives already: join it as a further worker.

    Raises:
        ConfigError: refused, nothing done.
        EngineDied, StorageError: died; the same call resumes.
    """
    if append and token:
        reason = "`--append` and `--join` exclude each other: let the files join first, then join without `--append`"
        raise ConfigError(reason=reason)
    with Stop() as stop:
        how = _How(listen=listen, append=append, warm=warm, slot=slot)
        return _run(job, stop, token, how)


class _How(msgspec.Struct, frozen=True, kw_only=True):
    """What a start is asked beside its job."""

    listen: Listener | None
    append: bool = False
    warm: WarmFleet | None = None
    slot: Slot = ALONE
    again: dict[int, Again] | None = None
    """Tasks whose failed rows are asked once more."""


def _run(job: Job, stop: Stop, token: str, how: _How) -> Summary:
    storage = open_storage(job.output.path)
    check_places(job, storage)
    traces = Traces(storage)
    mine = token or new_token()
    with claim_output(storage, token=mine, lease_s=job.run.lease_s) as owner:
        if owner.has_joined:
            return _run_owned(job, storage, mine, stop, how)
        tidy(storage)
        try:
            return _run_owned(job, storage, mine, stop, how)
        except (ConfigError, StoppedNow) as error:
            # Still the owner, and nobody was to join: nobody else's traces are among these.
            if how.slot.is_alone:
                traces.remove(error)
            if how.append:
                remove_strange(storage)
            raise


def retry(job: Job, *, kinds: Sequence[str] = (), listen: Listener | None = None) -> Summary:
    """Ask the failed rows of a run again; the last outcome of a row wins, the earlier ones are kept beside.

    Args:
        job: the run's own (`stored_job`), or one with other settings over the same input.
        kinds: kinds of failure to ask again, or `violation`: answers that break their schema; none: all failures.

    Raises:
        ConfigError: there is no run, the input is another, or ids are to stand in another column.
    """
    storage = open_storage(job.output.path)
    found = read_run(storage)
    if found is None:
        raise ConfigError(reason=f"`{job.output.path}` holds no run; there is nothing to retry")
    check_ids(found[0], job)
    token = new_token()
    with Stop() as stop, claim_output(storage, token=token, lease_s=job.run.lease_s):
        tidy(storage)
        tree = job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        again = plan_retry(storage, tuple(kinds), tree)
        return _run_owned(job, storage, token, stop, _How(listen=listen, again=again))


def _run_owned(job: Job, storage: Storage, token: str, stop: Stop, how: _How) -> Summary:
    again, listen = how.again, how.listen
    opened = open_run(
        job,
        storage,
        token=token,
        is_retry=again is not None,
        append=how.append,
        listen=listen,
    )
    if opened.words.job.validate_.strict and opened.is_new:
        refuse_bad_rows(opened)
    opened = with_lots(opened, storage, again=again, listen=listen)
    check_sink(opened)
    worker = Worker(
        opened,
        storage,
        name=pod_name(),
        token=token,
        stop=stop,
        listen=listen,
        again=again,
        warm=how.warm,
        slot=how.slot,
    )
    if how.append and listen is not None and not worker.has_work:
        # With work, they are told beside the plan.
        for note in opened.notes:
            listen(Note(text=note))
    pays = how.slot.is_alone and again is None and worker.has_work
    pays = pays and not opened.cut.additions and opened.cut.lots is None
    with (
        calm_interpreter(),
        publishing_ahead(
            storage, opened.cut, opened.words.job.output, form_of_run(opened), pays=pays
        ) as ahead,
        contextlib.closing(worker.teller) as teller,
        loading(opened, storage, how.slot, listen) as load,
    ):
        worker.work()
        done, began = None, time.monotonic()
        if is_whole(opened, storage, again):
            with _publisher(opened, storage, token, how.slot) as may_publish:
                done = publish_run(opened, storage, ahead) if may_publish else None
        if done is not None:
            teller.hear(
                Published(parts=len(done.parts), seconds=round(time.monotonic() - began, 3))
            )
        if not stop:
            load.end(is_whole=done is not None)
        told = summary(opened, worker, stop, done, worker.foretelling.said())
        told = with_loaded(told, load.result, opened.words.job)
        told = msgspec.structs.replace(told, verdict=teller.verdict())
        teller.hear(told)
    return told


@contextlib.contextmanager
def _publisher(opened: Opened, storage: Storage, token: str, slot: Slot) -> Iterator[bool]:
    """Whether this worker is the one that publishes: of several that see the last commit, one does.

    Should it die, who is started in its place, or waits here, takes over.
    """
    if slot.is_alone:
        yield True
        return
    lease_s = opened.words.job.run.lease_s
    with Leases(storage, worker=pod_name(), token=token, lease_s=lease_s) as leases:
        give_up_at = time.monotonic() + slot.patience_s
        while (epoch := leases.claim(opened.cut.num_tasks)) is None:
            if time.monotonic() > give_up_at:
                break
            time.sleep(WAIT_S)
        yield epoch is not None


def refuse_bad_rows(opened: Opened) -> None:
    """Read every row; refuse the job where one is bad (`validate.strict`).

    Raises:
        ConfigError: names the first bad row and how many there are.
    """
    stations = stations_of(opened)
    tasks = (
        TaskRows(task=i, slices=list(opened.places.task_slices(i)), done=set())
        for i in opened.new_tasks
    )
    first = ""
    for window in stations.windows(tasks):
        for outcome in sorted(window.rejects, key=lambda o: o.key)[: 0 if first else 1]:
            first = f"{opened.places.place_of(outcome.key)}: {outcome.error}"
    if stations.num_rejected:
        reason = f"{stations.num_rejected} bad rows, `validate.strict` refuses them; the first is {first}"
        raise ConfigError(reason=reason)


def is_whole(opened: Opened, storage: Storage, again: dict[int, Again] | None = None) -> bool:
    """Whether all tasks are committed, and those that are asked again anew."""
    names = storage.list(rundir.COMMITS)
    wanted = [rundir.commit(task, one.retry) for task, one in (again or {}).items()]
    return set(wanted) <= set(names) and len(read_commits(storage)) >= opened.cut.num_tasks


def publish_run(opened: Opened, storage: Storage, ahead: Ahead | None) -> Done:
    """Write the results of a run that is whole.

    Raises:
        InputChanged: what they are joined with is no longer what was asked.
        StorageError: they cannot be written.
    """
    moved = changed(opened.record.files)
    if moved:
        raise InputChanged(path=next(iter(moved)))
    done = publish(
        storage,
        opened.cut,
        list(read_commits(storage).values()),
        prefix=opened.record.prefix,
        part_bytes=opened.words.job.output.part_bytes,
        form=form_of_run(opened),
        answers=schema_text(opened.words.job),
        written=ahead.parts if ahead is not None else None,
    )
    if opened.cut.lots is not None:
        clear_lots(storage)
    return done


def form_of_run(opened: Opened) -> Form:
    """How the run's results are written."""
    job = opened.words.job
    own, id_column = answer_form_of(job), job.validate_.id_column
    return form_of(job.output, opened.cut.shards, own, id_column)


def schema_text(job: Job) -> str:
    """JSON Schema that the job holds its answers to; empty for none."""
    schema = job.sampling.schema_
    return msgspec.json.encode(schema).decode() if schema else ""


def summary(
    opened: Opened, work: Work, stop: Stop, done: Done | None, forecast: Forecast | None = None
) -> Summary:
    """How the run ended, published or not; `forecast` is what was said before."""
    counts = done.counts if done else work.all_counts()
    total = counts.done if done else work.total
    exit_code = stop.exit_code or (4 if counts.failed else 0)
    return Summary(
        total=total,
        ok=counts.ok,
        failed=counts.failed,
        not_done=total - counts.done,
        copied=counts.copied,
        prompt_tokens=counts.prompt_tokens,
        cached_tokens=counts.cached_tokens,
        output_tokens=counts.output_tokens,
        asked=work.new_counts.done,
        new_tokens=work.new_counts.prompt_tokens + work.new_counts.output_tokens,
        truncated=counts.truncated,
        violations=counts.violations,
        seconds=work.seconds,
        engine_start_s=work.engine_start_s,
        cost=work.cost,
        forecast=forecast if done else None,
        output=opened.words.job.output.path,
        results=[part.name for part in done.parts] if done else [],
        errors=counts.top_errors(MAX_SHOWN_ERRORS),
        retries=work.retries,
        stopped="" if done else stop.reason,
        exit_code=0 if done and not counts.failed else (4 if done else exit_code),
    )
