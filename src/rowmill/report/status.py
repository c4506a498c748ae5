"""Output -> how far the run is, from what lies there alone."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import msgspec

from rowmill import rundir
from rowmill.events import Verdict
from rowmill.journal import Counts
from rowmill.leases import current_note
from rowmill.leases.note import is_gone
from rowmill.report.run import View, open_view, run_of
from rowmill.report.verdicts import verdict_of
from rowmill.shown.spans import amount, duration
from rowmill.telemetry import Sample

MAX_ERRORS = 5
HOUR_S = 3600.0
TAIL_BYTES = 2**16
"""Enough for the last events of a worker: its last sample is among them, however many tasks ended since."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is."""

    output: str
    folder: str
    """Where the run lies: `output`, or beside a file of `run-batch`."""
    state: str
    """`running`, `interrupted`, `answered` (not published yet) or `finished`."""
    owner: str
    """Host and process that works on it; empty where none does."""
    total: int
    """Lines of the input; blank ones are no rows and are taken off once their task is done."""
    ok: int
    failed: int
    not_done: int
    copied: int
    truncated: int
    violations: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    tasks: int
    committed_tasks: int
    results: list[str]
    """Below `folder`."""
    errors: list[tuple[str, str, int]]
    left_s: float = 0.0
    """Seconds that what is left takes, by tokens and at the rate of the last minutes; 0 where that cannot be said."""
    cost: float = 0.0
    """So far, at the prices of `[run]`."""
    whole_cost: float = 0.0
    """What it will have cost at the end, about."""
    verdict: Verdict | None = None
    """What it waits for most, by what its workers wrote down."""

    def lines(self) -> Iterator[str]:
        """The status for people."""
        yield f"{self.output}: {self.state}{f' by {self.owner}' if self.owner else ''}"
        done = self.ok + self.failed
        share = f" ({done / self.total:.1%})" if self.total else ""
        yield f"rows    {done:,} of {self.total:,} done{share}: {self.ok:,} ok, {self.failed:,} failed"
        yield f"        {self.copied:,} copied from equal rows, {self.truncated:,} cut by max_tokens"
        if self.violations:
            yield f"        {self.violations:,} with answers that break their schema, `regex` or `choices`"
        yield (
            f"tokens  {self.prompt_tokens:,} in ({self.cached_tokens:,} from cache),"
            f" {self.output_tokens:,} out"
        )
        if self.left_s:
            yield f"left    {duration(self.left_s)}"
        if self.cost:
            more = f" of about {amount(self.whole_cost)}" if self.whole_cost else ""
            yield f"cost    {amount(self.cost)}{more}"
        yield f"tasks   {self.committed_tasks:,} of {self.tasks:,} committed"
        if self.verdict is not None and self.verdict.station:
            yield f"{'fine' if self.verdict.is_well else 'slow'}    {self.verdict.line()}"
        for kind, shape, rows in self.errors:
            yield f"failed  {rows:,} x {kind}: {shape}"
        for name in self.results:
            yield f"result  {self.folder}/{name}"
        if self.state == "interrupted":
            yield "resume  run the same command again"


def status(output: str) -> Status:
    """How far the run in `output` is.

    Raises:
        ConfigError: there is none.
    """
    view = open_view(output)
    return status_of(view, view.counts(), output)


def status_of(view: View, counts: Counts, output: str) -> Status:
    """How far a run is that somebody looked at, by the sums over its outcomes."""
    total = total_rows(view)
    # What is published stays while files that joined are answered.
    is_whole = len(view.commits) == view.cut.num_tasks
    is_done = is_whole and view.storage.size(rundir.DONE) is not None
    owner = "" if is_done else _living_owner(view)
    left_s, cost, whole_cost = _ahead(view, is_running=bool(owner))
    return Status(
        output=output,
        folder=run_of(output).rstrip("/"),
        state=_state(view, is_done=is_done, owner=owner),
        owner=owner,
        total=total,
        ok=counts.ok,
        failed=counts.failed,
        not_done=total - counts.done,
        copied=counts.copied,
        truncated=counts.truncated,
        violations=counts.violations,
        prompt_tokens=counts.prompt_tokens,
        cached_tokens=counts.cached_tokens,
        output_tokens=counts.output_tokens,
        tasks=view.cut.num_tasks,
        committed_tasks=len(view.commits),
        results=view.storage.list(rundir.RESULTS),
        errors=counts.top_errors(MAX_ERRORS),
        left_s=left_s,
        cost=cost,
        whole_cost=whole_cost,
        verdict=verdict_of(view.storage),
    )


def total_rows(view: View) -> int:
    """Rows of the run as far as known: lines, less those that are known to be blank."""
    return min(view.cut.most_rows - _blank_lines(view), _told_total(view))


def _state(view: View, *, is_done: bool, owner: str) -> str:
    if is_done:
        return "finished"
    if owner:
        return "running"
    return "answered" if len(view.commits) == view.cut.num_tasks else "interrupted"


def _living_owner(view: View) -> str:
    note = current_note(view.storage)
    alive = [m for m in note.members if not is_gone(m)] if note is not None else []
    return f"process {alive[0].pid} on {alive[0].host}" if alive else ""


def _ahead(view: View, *, is_running: bool) -> tuple[float, float, float]:
    """(seconds left, cost so far, cost at the end) as the worker that told last has it; of several at once none knows."""
    told = [_last_samples(view, name) for name in view.storage.list(rundir.EVENTS)]
    told = [samples for samples in told if samples]
    if not told:
        return 0.0, 0.0, 0.0
    # Each start counts what earlier ones cost and did: the one that has most is the last.
    samples = max(told, key=lambda some: (some[-1].cost, some[-1].done))
    first, last = samples[0], samples[-1]
    seconds, done = last.seconds - first.seconds, last.work_done - first.work_done
    if not is_running or done <= 0 or seconds <= 0:
        return 0.0, last.cost, 0.0
    left_s = last.work_left * seconds / done
    whole = last.cost + last.hour_price * left_s / HOUR_S + last.cost_left if last.cost else 0.0
    return left_s, last.cost, whole


def _last_samples(view: View, name: str) -> list[Sample]:
    """The last samples of a worker; none where its words do not reach so far."""
    size = view.storage.size(name) or 0
    tail = view.storage.read_range(name, max(0, size - TAIL_BYTES), size)
    found = []
    for line in tail.splitlines():
        with contextlib.suppress(msgspec.DecodeError):  # cut at its begin or its end
            if b'"event":"sample"' in line:
                found.append(msgspec.json.decode(line, type=Sample))
    return found


def _told_total(view: View) -> int:
    """Rows in all as the workers last told: they have read further than tasks are committed."""
    if view.cut.additions:
        # Who told it before files joined did not count theirs.
        return view.cut.most_rows
    totals = [view.cut.most_rows]
    for name in view.storage.list(rundir.EVENTS):
        size = view.storage.size(name) or 0
        tail = view.storage.read_range(name, max(0, size - TAIL_BYTES), size)
        totals += [int(number) for number in re.findall(rb'"total":(\d+)', tail)[-1:]]
    return min(totals)


def _blank_lines(view: View) -> int:
    blank = 0
    for task, commit in view.commits.items():
        blank += view.places.task_lines(task) - commit.num_rows
    return blank
