"""Output and a row -> the row's journey, station by station, in the words of the code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from rowmill.errors import ConfigError
from rowmill.journal import Commit, generations
from rowmill.read import read_spans
from rowmill.report.named import salvage_of, text_of
from rowmill.report.run import View, open_view
from rowmill.retries import read_retries
from rowmill.rows import RESULT_PREFIX, Outcome, pack_key, unpack_key
from rowmill.storage import NotThere
from rowmill.write.segments import read_outcomes


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome that a later asking replaced."""

    retry: int
    """0: the first asking; N: the N-th retry."""
    outcome: dict[str, Any]
    settings: dict[str, Any]
    """Those that the retry after it changed."""

    def line(self) -> str:
        """The generation for people."""
        o = self.outcome
        first = f"retry {self.retry}" if self.retry else "the first asking"
        what = (
            f"error {o['error_kind']}: {o['error']}" if o["status"] == "error" else o["status"]
        )
        if o["violation"]:
            what += f", {o['violation']}"
        changed = ", ".join(
            f"`{name}` = {_shown(value)}" for name, value in self.settings.items()
        )
        then = f"; asked again with {changed}" if changed else "; asked again"
        return f"before    {first}: {what}{then}"


def _shown(value: Any) -> str:
    return "its default" if value is None else msgspec.json.encode(value).decode()


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one row."""

    place: str
    """`FILE:LINE`."""
    shard: int
    ordinal: int
    task: int | None
    """None: a row without an outcome of a sorted input; its task is not known."""
    task_state: str
    outcome: dict[str, Any] | None
    """Fields of the outcome; None where there is none yet."""
    is_blank: bool = False
    """A line that is no row: its task is done, and it has no outcome."""
    segment: str
    earlier: list[Generation] = []
    """What it got before the retries that asked it again, oldest first."""

    def lines(self) -> Iterator[str]:
        """The journey for people."""
        yield f"read      {self.place}: line {self.ordinal} of shard {self.shard}"
        if self.is_blank:
            yield "row       none: the line is blank"
            return
        yield f"task      {'not known' if self.task is None else self.task}: {self.task_state}"
        if self.outcome is None:
            yield "engine    no outcome yet: not asked, in flight, or a blank line"
            return
        o = self.outcome
        if o["attempts"] or (o["copied_from"] is None and o["status"] == "ok"):
            # Vectors have no such limit, nor has an endpoint that was told none.
            most = f", at most {o['max_tokens']} to generate" if o["max_tokens"] else ""
            yield f"measure   {o['prompt_tokens']} prompt tokens{most}"
            yield f"engine    {o['attempts']} attempts, {o['seconds']:.2f} s, {o['output_tokens']} tokens out"
        if o["copied_from"]:
            yield f"plan      equal to {o['copied_from']}: its answer was copied"
        yield f"outcome   {o['status']}" + (
            f" ({o['finish_reason']})" if o["finish_reason"] else ""
        )
        if o["status"] == "error":
            yield f"error     {o['error_kind']}: {o['error']}"
        if o["violation"]:
            yield f"answer    {o['violation']}"
        yield f"write     {self.segment}"
        for generation in self.earlier:
            yield generation.line()


def trace(output: str, row: str) -> Journey:
    """The journey of a row, named by its id or by `FILE:LINE`.

    Raises:
        ConfigError: there is no such run or row.
    """
    view = open_view(output)
    key = _key_of_place(view, row)
    if key is None:
        key = _key_of_id(view, row)
    if key is None:
        reason = f"no row `{row[:80]}` in the input of `{output}`; name an id, or FILE:LINE"
        raise ConfigError(reason=reason)
    if not view.places.holds(key):
        reason = f"`{row}` is none of the run's {view.cut.first_lines:,} lines: `run.limit` leaves it out"
        raise ConfigError(reason=reason)
    return _journey(view, key)


def _journey(view: View, key: int) -> Journey:
    task = view.lot_of(key) if view.places.is_of_lots(key) else view.places.task_of(key)
    commit = view.commits.get(task) if task is not None else None
    parts = view.task_outcomes(task) if task is not None else iter(())
    outcome = next((o for part in parts for o in part if o.key == key), None)
    shard, ordinal = unpack_key(key)
    is_done = commit is not None or len(view.commits) == view.cut.num_tasks
    return Journey(
        place=view.places.place_of(key),
        shard=shard,
        ordinal=ordinal,
        task=task,
        task_state=f"committed in epoch {commit.epoch} by {commit.worker}"
        if commit
        else "open",
        outcome=_fields(outcome),
        is_blank=outcome is None and is_done,
        segment=commit.segments[0].name if commit and commit.segments else "in an open segment",
        earlier=list(_earlier(view, task, key)) if task is not None else [],
    )


def _earlier(view: View, task: int, key: int) -> Iterator[Generation]:
    """Outcomes that a later generation of the task does not have as they were."""
    settings = {plan.number: plan.settings for plan in read_retries(view.storage)}
    found = [
        (number, _fields(_outcome_in(view, commit, key)))
        for number, commit in generations(view.storage, task)
    ]
    for (number, outcome), (later, replaced) in pairwise(found):
        if outcome is not None and outcome != replaced:
            yield Generation(retry=number, outcome=outcome, settings=settings.get(later, {}))


def _outcome_in(view: View, commit: Commit, key: int) -> Outcome | None:
    parts = (part for ref in commit.segments for part in read_outcomes(view.storage, ref))
    # A second retry once removed what only the first commit names.
    with contextlib.suppress(NotThere):
        return next((outcome for part in parts for outcome in part if outcome.key == key), None)
    return None


def _fields(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    encoded = msgspec.json.encode(outcome)
    found = msgspec.json.decode(encoded, type=dict[str, Any])
    return {name.removeprefix(RESULT_PREFIX): found[name] for name in found if name != "key"}


def _key_of_place(view: View, row: str) -> int | None:
    name, _, line = row.rpartition(":")
    if not line.isdecimal():
        return None
    for shard in view.cut.shards:
        ordinal = int(line) - shard.first_line
        if shard.name == name and 0 <= ordinal < shard.num_lines:
            return pack_key(shard.index, ordinal)
    return None


def _key_of_id(view: View, row: str) -> int | None:
    """Look through the input for the id: one pass, as fast as lines are read."""
    salvage = salvage_of(view)
    needle = row.encode()
    escaped = msgspec.json.encode(row)[1:-1]
    view.check_input()
    for shard, first, stop in view.places.all_slices():
        for spans in read_spans(shard, first=first, stop=stop):
            for ordinal, line in spans:
                may_be = needle in line or escaped in line or b"\\u" in line
                if row and may_be and text_of(salvage.id(line)) == row:
                    return pack_key(shard.index, ordinal)
    return None
