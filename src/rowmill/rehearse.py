"""Job -> Report: read, validate, measure and plan every row, ask nothing.

Promises: no model is loaded and no row is sent; nothing is written; every bad row can be found by its place.
Knows nothing of: outputs beyond whether they can be used.
Memory: one window, counts, and the first bad rows.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.config import Job
from rowmill.events import MAX_NAMED_FILES, files_line
from rowmill.executors.far import Far
from rowmill.executors.opening import (
    Opened,
    new_run,
    new_token,
    stations_of,
    understand,
)
from rowmill.executors.placing import check_places
from rowmill.executors.wording import Words, field_lever
from rowmill.forecast.foretold import Foretold
from rowmill.forecast.gathered import Gathered
from rowmill.forecast.words import forecast_lines
from rowmill.journal import error_shape
from rowmill.pipeline import Stations, TaskRows, Window
from rowmill.plan import Lever
from rowmill.prospect import advice, limits_at, order_advice, places_of, prospects
from rowmill.read import open_source
from rowmill.rows import Outcome, Request
from rowmill.storage import open_storage
from rowmill.weighing import Weighed, weigh

Lengths = npt.NDArray[np.uint32]

MAX_NAMED_ROWS = 20
PERCENTILES = (50, 90, 99, 100)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `check` found."""

    engine: str
    files: int
    names: list[str]
    """Of the first files."""
    rows: int
    bad_rows: int
    bad: list[tuple[str, str, str]]
    """(FILE:LINE, kind, sentence) of the first bad rows."""
    bad_kinds: list[tuple[str, str, int]]
    """(kind, sentence shape, rows), most frequent first."""
    asked_rows: int
    """Rows that would go to the engine."""
    prompt_tokens: int
    prompt_percentiles: dict[str, int]
    """Prompt tokens of rows to ask, at these percentiles."""
    control_rows: int
    """Rows whose data holds control tokens of the model."""
    levers: list[Lever]
    forecasts: list[Foretold]
    """For the GPUs here or those named, else one of each kind; empty for engines without GPUs."""
    weighed: Weighed
    """Other profiles, other numbers of GPUs, endpoints: what they would take and cost."""
    advice: list[str]
    """Settings that cost time, by how much."""
    reasons: dict[str, str]
    notes: list[str]
    exit_code: int
    """0; 4 where rows are bad; 2 where the job would be refused (`refused` says why)."""
    refused: str = ""

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield f"engine    {self.engine}"
        yield f"input     {_count(self.rows, 'row')} in {_count(self.files, 'file')}"
        if self.names and (self.files > 1 or self.notes):
            yield f"files     {files_line(self.names, self.files)}"
        yield from (f"note      {note}" for note in self.notes)
        yield f"to ask    {_count(self.asked_rows, 'row')}, {self.prompt_tokens:,} prompt tokens"
        if self.prompt_tokens:
            told = ", ".join(f"p{k} {v:,}" for k, v in self.prompt_percentiles.items())
            yield f"lengths   {told.replace('p100', 'longest')} tokens"
        if self.control_rows:
            yield f"control   {_count(self.control_rows, 'row')} with the model's control tokens in the data"
        yield from (f"plan      {lever.name}: {lever.reason}" for lever in self.levers)
        yield from forecast_lines(self.forecasts)
        yield from self.weighed.lines()
        yield from (f"advice    {text}" for text in self.advice)
        yield from (f"setting   {name}: {why}" for name, why in self.reasons.items())
        yield from self._bad_lines()
        if self.refused:
            yield f"refused   {self.refused}"

    def _bad_lines(self) -> Iterator[str]:
        yield f"bad       {_count(self.bad_rows, 'row')}"
        for place, kind, sentence in self.bad:
            yield f"  {place}: {kind}: {sentence}"
        if self.bad_rows > len(self.bad):
            yield f"  and {self.bad_rows - len(self.bad):,} more:"
            for kind, shape, rows in self.bad_kinds:
                yield f"  {rows:,} x {kind}: {shape}"


def check(job: Job, *, sample: int | None = None, deadline_h: float | None = None) -> Report:
    """Rehearse a job without an engine.

    Args:
        sample: read only the first so many rows.
        deadline_h: hours in which it is wanted: how many GPUs that takes.

    Raises:
        ConfigError: the job or its input cannot be used at all.
    """
    if job.output.path:
        storage = open_storage(job.output.path)
        check_places(job, storage)
    if sample is not None:
        job = job.model_copy(update={"run": job.run.model_copy(update={"limit": sample})})
    with tempfile.TemporaryDirectory(prefix="rowmill-check-") as spool:
        words = understand(job)
        places = places_of(words.job)
        if len(places) == 1:
            at = limits_at(words.job, words.limits, places[0])
            words = msgspec.structs.replace(words, limits=at)
        source = open_source(job.source, spool=Path(spool), read=job.read)
        # As a new run would see it, whatever lies at the output.
        opened = new_run(words, source, new_token())
        stations = stations_of(opened)
        tally = _Tally(opened, is_forecast=bool(places), deadline_h=deadline_h)
        far = Far(opened, stations) if opened.words.limits.shares_prefixes else None
        for valid in stations.validated(_all_tasks(opened)):
            if far is not None:
                far.add(valid.requests)
            for window in stations.planned(valid):
                tally.add(window)
        report = tally.report(opened, stations, far)
        lever = field_lever(opened.words, source, _seconds_of(words, stations))
        levers = [*report.levers, *([lever] if lever is not None else [])]
        return msgspec.structs.replace(report, levers=levers)


def _seconds_of(words: Words, stations: Stations) -> Callable[[list[Request]], float]:
    """How long a window takes where the job is to run, as it would be planned; 0 where that is not one place."""

    def seconds(requests: list[Request]) -> float:
        if len(places_of(words.job)) != 1:
            return 0.0
        gathered = stations.tried(requests, is_lot=False)
        found = next(prospects(words.job, gathered, words.limits, is_brief=True), None)
        return found.seconds if found is not None and found.fit.parallel else 0.0

    return seconds


def _all_tasks(opened: Opened) -> Iterator[TaskRows]:
    for task in range(opened.cut.num_tasks):
        yield TaskRows(task, list(opened.places.task_slices(task)), set())


class _Tally:
    """Sums over windows."""

    def __init__(self, opened: Opened, *, is_forecast: bool, deadline_h: float | None) -> None:
        self._places, self._deadline_h = opened.places, deadline_h
        self._gathered = Gathered() if is_forecast else None
        self._rows = self._asked = self._tokens = 0
        self._bad: list[Outcome] = []
        self._shapes: Counter[tuple[str, str]] = Counter()
        self._lengths: list[Lengths] = []
        self._levers: dict[str, Lever] = {}

    def add(self, window: Window) -> None:
        self._rows += window.num_rows
        self._asked += window.plan.num_asked
        lengths = window.plan.prompts.lengths()
        self._tokens += int(lengths.sum())
        self._lengths.append(lengths.astype(np.uint32))
        if self._gathered is not None:
            self._gathered.add_planned(window.plan)
        for outcome in window.rejects:
            self._shapes[outcome.error_kind or "", error_shape(outcome.error or "")] += 1
        worst = sorted([*self._bad, *window.rejects], key=lambda o: o.key)
        self._bad = worst[:MAX_NAMED_ROWS]
        for lever in window.plan.levers:
            self._add_lever(lever)

    def _add_lever(self, lever: Lever) -> None:
        """Sum a lever over windows; where it was used once, that is what is told."""
        old = self._levers.get(lever.name)
        if old is None or (lever.is_used and not old.is_used):
            self._levers[lever.name] = lever
        elif lever.is_used:
            rows = old.saved_rows + lever.saved_rows
            self._levers[lever.name] = msgspec.structs.replace(
                old,
                reason=f"{rows:,} rows equal an earlier one of their window",
                saved_rows=rows,
                saved_tokens=old.saved_tokens + lever.saved_tokens,
            )

    def report(self, opened: Opened, stations: Stations, far: Far | None) -> Report:
        control_rows, forecasts = opened.words.measure.control_rows, self._forecasts(opened)
        levers = {**stations.levers, **self._levers}
        if far is not None:
            forecasts, lever = far.told(forecasts, self._asked)
            levers[lever.name] = lever
        num_bad = sum(self._shapes.values())
        refused = ""
        if stations.duplicates:
            refused = stations.duplicates_sentence()
        elif num_bad and opened.words.job.validate_.strict:
            refused = f"{num_bad} bad rows and `validate.strict` is on"
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.uint32)
        return Report(
            engine=opened.words.limits.about or opened.words.job.engine.name,
            files=len(opened.record.files),
            names=[file.name for file in opened.record.files[:MAX_NAMED_FILES]],
            rows=self._rows,
            bad_rows=num_bad,
            bad=[
                (self._places.place_of(o.key), o.error_kind or "", o.error or "")
                for o in self._bad
            ],
            bad_kinds=[(*k, n) for k, n in self._shapes.most_common(5)],
            asked_rows=self._asked,
            prompt_tokens=self._tokens,
            prompt_percentiles=_percentiles(lengths),
            control_rows=control_rows,
            # Those of the order are decided once a window, before it is cut to pieces.
            levers=list(levers.values()),
            forecasts=forecasts,
            weighed=self._weighed(opened),
            advice=self._advice(opened, forecasts, levers),
            reasons=opened.record.reasons,
            notes=[*opened.notes, *opened.words.measure.notes()],
            exit_code=2 if refused else 4 if num_bad else 0,
            refused=refused,
        )

    def _forecasts(self, opened: Opened) -> list[Foretold]:
        if self._gathered is None:
            return []
        return list(prospects(opened.words.job, self._gathered, opened.words.limits))

    def _weighed(self, opened: Opened) -> Weighed:
        if self._gathered is None:
            return Weighed()
        words = opened.words
        return weigh(words.job, self._gathered, words.limits, deadline_h=self._deadline_h)

    def _advice(
        self, opened: Opened, forecasts: list[Foretold], levers: dict[str, Lever]
    ) -> list[str]:
        if self._gathered is None:
            return []
        found = list(advice(opened.words.job, self._gathered, opened.words.limits))
        return [*found, *(order_advice(forecasts[0], levers) if len(forecasts) == 1 else ())]


def _percentiles(lengths: Lengths) -> dict[str, int]:
    if not len(lengths):
        return {}
    values = np.percentile(lengths, PERCENTILES, method="nearest").tolist()
    return {str(p): int(v) for p, v in zip(PERCENTILES, values, strict=True)}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
