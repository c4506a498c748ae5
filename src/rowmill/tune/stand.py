"""The place where settings are tried: rows of the job, engines started with one setting after the other, a run that keeps
what they answer.

Promises: the run is written down before its rows are kept, and refused before an engine starts; trials whose settings would
answer rows otherwise than the run has leave none.
Knows nothing of: which settings to try, job files, terminals.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rowmill import rundir
from rowmill.config import Job
from rowmill.engines.care import care_of
from rowmill.errors import ConfigError, EngineDied
from rowmill.eventlog import EventLog
from rowmill.events import Listener, Note
from rowmill.executors.caps import Caps
from rowmill.executors.identity import is_identity
from rowmill.executors.local import refuse_bad_rows
from rowmill.executors.lots import with_lots
from rowmill.executors.opening import open_run, start_run, stations_of
from rowmill.executors.slots import pod_name
from rowmill.executors.stopping import Stop
from rowmill.forecast.gathered import Gathered
from rowmill.forecast.probe import Cost, Probe
from rowmill.journal import Counts
from rowmill.leases import Leases
from rowmill.outcomes import Outcomes
from rowmill.prospect import gpus_here, priced_at
from rowmill.rows import Prompts
from rowmill.shown.spans import duration
from rowmill.size.gpus import kind_of
from rowmill.storage import Storage
from rowmill.storage.temporary import temporary_folder
from rowmill.tune.keeping import Answers, Keeping
from rowmill.tune.learning import Learning
from rowmill.tune.moves import Move, check_also, levels_of, moves_of, with_engine
from rowmill.tune.report import Tuned
from rowmill.tune.sample import Sample
from rowmill.tune.search import Found, Tried, halve, look_again, search, try_move
from rowmill.tune.trial import Measured, Patience, Trial

MOST_TOKENS = 30_000_000
"""Of prompts that are held for trials."""
_ASKED_FOR = "asked for; it changes answers"
SETTLE_S = 120.0
"""Rows in flight at the end of a trial are wanted: so long they are waited for."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is tuned."""

    patience: Patience = Patience()
    most_starts: int = 4
    most_s: float = 1800.0
    """All of it: no further start after."""
    also: tuple[tuple[str, Any], ...] = ()
    """Settings that change answers, to be tried each: name and value."""


class Stand:
    """See the module."""

    def __init__(
        self,
        job: Job,
        ask: Ask,
        storage: Storage,
        leases: Leases,
        token: str,
        stop: Stop,
        listen: Listener | None,
    ) -> None:
        """Open the run.

        Raises:
            ConfigError: the job is refused.
        """
        self._given, self._ask, self._storage, self._token = job, ask, storage, token
        self._stop, self._listen, self._began = stop, listen, time.monotonic()
        check_also(job, ask.also)
        opened = open_run(job, storage, token=token, listen=listen)
        if ask.also and not opened.is_new:
            reason = (
                f"`{job.output.path}` holds a run, and `--also` tries settings that change answers;"
                " take another `-o` for them"
            )
            raise ConfigError(reason=reason)
        if job.validate_.strict and opened.is_new:
            refuse_bad_rows(opened)
        self._opened = with_lots(opened, storage, listen=listen)
        self._job, self._limits = self._opened.words.job, self._opened.words.limits
        self._keeping = Keeping(storage, self._opened, leases, name=pod_name())
        self._spent = Counts()
        self._caps = Caps(job.run, storage, stop, before=self._keeping.paid)
        self._gathered, self._sample = Gathered(), Sample()
        self._row_s = 0.0
        """What it takes to read, tokenise and plan a row."""
        self._asked_share = self._read()
        self._learning = Learning(self._sample)
        self._rows: Iterator[Prompts] = self._sample.stream()
        self._edges_s = 0.0
        """Of the best trial so far."""
        self._tried_answers: dict[Answers, int] = {}
        """Rows answered by settings of each identity."""
        self._log = EventLog(storage, f"{pod_name()}-tune")

    def work(self) -> Tuned:
        """Tune."""
        if not self._sample.rows:
            notes = ["no row is left to be asked: nothing is tuned"]
            return Tuned(engine=self._limits.about, notes=notes)
        if not self._ask.also:
            self._begin(())
        self._tell(f"{self._sample.rows:,} rows are read; trials are of them")
        with self._stop.draining():
            try:
                found = search(self, self._chains, most_starts=self._ask.most_starts)
                self._try_also(found)
                return self._tuned(found)
            finally:
                self._keeping.close()
                self._log.close()

    # -- rows ----------------------------------------------------------------------------

    def _read(self) -> float:
        """Take a sample of what is left; what would refuse the job refuses it here. Returns: the share of rows to ask."""
        stations = stations_of(self._opened)
        read = asked = 0
        began = time.monotonic()
        for window in stations.windows(self._keeping.tasks()):
            if window.lot is not None:
                self._keeping.await_rows(window.lot, window.keys())
            self._sample.add(window.plan)
            if self._gathered.is_open:
                self._gathered.add_planned(window.plan)
            read += window.num_rows
            asked += window.plan.num_asked
            if self._sample.tokens > MOST_TOKENS:
                break
        if self._opened.is_new:
            stations.check_duplicates()
            stations.check_any_asked()
        self._row_s = (time.monotonic() - began) / read if read else 0.0
        return asked / read if read else 1.0

    def _begin(self, answers: Answers) -> None:
        """The run has these settings: from here on rows of trials are its results."""
        if self._opened.is_new:
            if answers:
                changed = with_engine(self._given, self._values_of(answers))
                opened = open_run(changed, self._storage, token=self._token)
                self._opened = with_lots(opened, self._storage)
            start_run(self._opened, self._storage)
        self._keeping.begin(answers)

    def _answers(self, changes: dict[str, Any]) -> Answers:
        changing = [name for name in sorted(changes) if is_identity(self._job.engine, name)]
        return tuple((name, repr(changes[name])) for name in changing)

    def _values_of(self, answers: Answers) -> dict[str, Any]:
        asked = dict(self._ask.also)
        return {name: asked[name] for name, _ in answers}

    # -- what the search asks for --------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """See `search.Place`."""
        return bool(self._stop) or time.monotonic() - self._began > self._ask.most_s

    def start(self, changes: dict[str, Any], levels: Sequence[int] | None) -> list[Tried]:
        """See `search.Place`."""
        answers = self._answers(changes)

        def put(outcomes: Outcomes) -> None:
            self._learning.add(outcomes)
            # Trials cost what they cost: they stop where a run of these rows would.
            self._spent.add(outcomes)
            self._caps.check(self._spent, rejected=0, entered=self._spent.done)
            self._tried_answers[answers] = self._tried_answers.get(answers, 0) + len(outcomes)
            self._keeping.put(answers, outcomes)

        record = self._storage.path(rundir.engine(os.getpid()))
        folder = record.parent if record is not None else temporary_folder("tune")
        care = msgspec.structs.replace(
            care_of(self._job.run), tell=self._tell, is_stopping=lambda: bool(self._stop)
        )
        told = ", ".join(f"{k} = {v}" for k, v in changes.items()) or "the job's own settings"
        self._tell(f"starting the engine: {told}")
        log = folder / f"tune-{os.getpid()}.log"
        engine = with_engine(self._job, changes).engine
        trial = Trial(engine, log=log, care=care, put=put, record=record)
        try:
            tried = self._measured(trial, changes, levels, is_kept=not answers)
        except (EngineDied, ConfigError) as error:
            if not changes:
                raise
            tried = [Tried(changes=changes, verdict=f"does not run: {error}"[:200])]
        finally:
            trial.close()
        for one in trial.logs:
            one.unlink(missing_ok=True)
        if trial.came_down:
            return [Tried(changes=changes, verdict="there is not enough memory for it")]
        return tried

    def _measured(
        self,
        trial: Trial,
        changes: dict[str, Any],
        levels: Sequence[int] | None,
        *,
        is_kept: bool,
    ) -> list[Tried]:
        limits = trial.start()
        self._limits, self._caps.gpus = limits, trial.gpus
        if levels is None or max(levels) > limits.seats:
            levels = levels_of(self._job.engine, limits)
        level = _Level(trial, self._rows, self._tell)
        ranked = halve(level, levels, self._ask.patience, least=limits.replicas)
        trial.settle(SETTLE_S)
        if ranked:
            self._edges_s = trial.edges_s(ranked[0].rate)
        return [
            Tried(
                changes=changes,
                in_flight=one.in_flight,
                measured=one,
                start_s=trial.start_s if number == 0 else 0.0,
                seats=limits.seats,
                replicas=limits.replicas,
                edges_s=self._edges_s,
                gpus=trial.gpus,
                is_kept=is_kept,
            )
            for number, one in enumerate(ranked)
        ]

    def left_s(self, best: Measured) -> float:
        """See `search.Place`."""
        work, _, _, _, _ = self._left()
        return work / best.rate.mean

    def _chains(self) -> list[list[Move]]:
        return moves_of(self._job, self._limits, self._gathered)

    def _try_also(self, found: Found) -> None:
        """Settings that change answers, each on top of what is best: they were asked for, so no gain need be expected."""
        for name, value in self._ask.also:
            if found.best is None or self.is_over or found.starts >= self._ask.most_starts:
                return
            move, before = Move(name, {name: value}, 0.0, _ASKED_FOR), found.best
            try_move(self, found, move)
            if found.best is not before and found.starts < self._ask.most_starts:
                look_again(self, found, before)

    # -- what comes of it ----------------------------------------------------------------

    def _left(self) -> tuple[float, float, float, float, int]:
        """(work, its standard error, prompt tokens, answer tokens, rows) of what is left of the job."""
        learned = self._learning.learned()
        work, error, prompts, answers = self._learning.totals(learned)
        lines = self._keeping.lines_left() - self._keeping.done_before
        more = max(1.0, self._asked_share * lines / self._sample.rows)
        rows = round(more * self._sample.rows) - self._keeping.rows
        done = self._learning.done_work() if self._keeping.rows else 0.0
        left = max(0.0, more * work - done)
        share = left / (more * work) if work else 0.0
        # Errors of rows that were not looked at go with those that were.
        return left, more * error, more * prompts * share, more * answers * share, max(0, rows)

    def _tuned(self, found: Found) -> Tuned:
        tuned = Tuned(
            engine=self._limits.about or self._job.engine.name,
            tried=found.tried,
            starts=found.starts,
            lengths=self._learning.lengths(),
            exit_code=self._stop.exit_code,
            notes=[self._stop.reason] if self._stop else [],
        )
        if found.best is None or found.best.measured is None:
            if self._ask.also:
                self._begin(())
            tuned.notes.append("too few rows were answered in the time to tell a rate")
            tuned.rows_kept = self._keeping.rows
            return tuned
        answers = self._answers(found.best.changes)
        if self._ask.also:
            self._begin(answers)
        tuned.chosen = chosen_of(found)
        tuned.changes_answers = bool(answers)
        tuned.rows_kept = self._keeping.rows
        tuned.rows_dropped = sum(
            rows for one, rows in self._tried_answers.items() if one != answers
        )
        tuned.probe = self._probe(found.best, found.best.measured)
        tuned.estimate = tuned.probe.estimate()
        self._storage.replace(rundir.PROBE, msgspec.json.encode(tuned.probe))
        tuned.seconds = time.monotonic() - self._began
        self._tell(
            f"tuned in {duration(tuned.seconds)}: {tuned.rows_kept:,} rows of trials are kept"
        )
        return tuned

    def _probe(self, best: Tried, measured: Measured) -> Probe:
        work, error, prompts, answers, rows = self._left()
        return Probe(
            made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            settings=best.changes | {"in_flight": best.in_flight},
            rate=measured.rate.mean,
            rate_low=measured.rate.low,
            rate_high=measured.rate.high,
            work=work,
            work_error=error,
            rows=rows,
            prompt_tokens=prompts,
            answer_tokens=answers,
            feeding_s=self._row_s * rows / max(self._asked_share, 1e-9),
            edges_s=best.edges_s,
            start_s=best.start_s,
            cost=cost_of(self._job, best.gpus),
            learned=self._learning.learned(),
        )

    def _tell(self, text: str) -> None:
        note = Note(text=text)
        self._log.add(note)
        if self._listen is not None:
            self._listen(note)


class _Level:
    """Engines that are open, and the rows."""

    def __init__(self, trial: Trial, rows: Iterator[Prompts], tell: Any) -> None:
        self._trial, self._rows, self._tell = trial, rows, tell

    def measure(self, in_flight: int, patience: Patience) -> Measured | None:
        """See `search.Level`."""
        found = self._trial.measure(self._rows, in_flight, patience)
        if found is not None:
            self._tell(
                f"{in_flight:,} rows in flight: {found.rows_s:,.1f} rows/s, {found.tokens_s:,.0f} tokens/s"
                f" (+-{found.rate.share:.1%})"
            )
        return found


def cost_of(job: Job, gpus: int) -> Cost:
    """Prices of the job, else those of the table for the GPUs that are here."""
    run, here = job.run, gpus_here()
    is_given = run.gpu_hour_price is not None or not here
    gpu_hour = run.gpu_hour_price or 0.0
    if not is_given:
        gpu_hour = priced_at(job, kind_of(here[0].name, here[0].memory_bytes))
    return Cost(
        gpus=gpus,
        gpu_hour=gpu_hour,
        prompt_million=run.prompt_million_price or 0.0,
        output_million=run.output_million_price or 0.0,
        about="" if is_given or not gpu_hour else "a price of the table",
    )


def chosen_of(found: Found) -> dict[str, tuple[Any, str]]:
    """Settings of the best, each with its reason."""
    best = found.best
    assert best is not None
    assert best.measured is not None
    told = f"{best.measured.tokens_s:,.0f} tokens/s"
    chosen = {}
    for name, value in best.changes.items():
        step = next(
            one for one in found.tried if one.measured and one.changes.get(name) == value
        )
        gain = step.verdict.partition(":")[0]
        chosen[name] = (value, f"tune: {gain} ({step.why}); {told} in all")
    if best.in_flight < best.seats:
        # Other settings are tried with the rows at once that were best before: where all seats ran tells the reason.
        full = [one for one in found.tried if one.measured and one.in_flight == one.seats]
        full.sort(key=lambda one: one.changes != best.changes)
        against = "fewer than the engine's own"
        for one in full[:1]:
            assert one.measured is not None
            against = f"{one.seats // one.replicas} did {one.measured.tokens_s:,.0f}"
        chosen["seats"] = (
            best.in_flight // best.replicas,
            f"tune: {told} with so many rows at once, {against}",
        )
    return chosen
