"""Output -> how far the run is, from what lies there alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from rowmill import rundir
from rowmill.events import Verdict
from rowmill.journal import Counts
from rowmill.leases import current_note
from rowmill.leases.note import is_gone
from rowmill.report.run import View, open_view
from rowmill.report.verdicts import verdict_of

MAX_ERRORS = 5
TAIL_BYTES = 2**16
"""Enough for the last events of a worker: its last sample is among them, however many tasks ended since."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is."""

    output: str
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
    errors: list[tuple[str, str, int]]
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
        yield f"tasks   {self.committed_tasks:,} of {self.tasks:,} committed"
        if self.verdict is not None and self.verdict.station:
            yield f"{'fine' if self.verdict.is_well else 'slow'}    {self.verdict.line()}"
        for kind, shape, rows in self.errors:
            yield f"failed  {rows:,} x {kind}: {shape}"
        for name in self.results:
            yield f"result  {self.output.rstrip('/')}/{name}"
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
    total = min(view.cut.most_rows - _blank_lines(view), _told_total(view))
    # What is published stays while files that joined are answered.
    is_whole = len(view.commits) == view.cut.num_tasks
    is_done = is_whole and view.storage.size(rundir.DONE) is not None
    owner = "" if is_done else _living_owner(view)
    return Status(
        output=output,
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
        verdict=verdict_of(view.storage),
    )


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
