"""Output -> all that a report says of a run, as one value: how far it is, its rows, its time, its money, its settings.

Promises: made from what lies at the output alone, and from the input for the ids of rows; nothing is changed there.
Knows nothing of: pages, plots.
Memory: counts and lines over time; not rows.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from rowmill.events import EngineReady, Forecast, Planned, Summary, Verdict
from rowmill.record import Places, Record
from rowmill.report.history import History, Start, history_of
from rowmill.report.named import Names
from rowmill.report.run import open_view
from rowmill.report.status import Status, status_of
from rowmill.report.tally import Tally, Tallying
from rowmill.report.timeline import Timeline, timeline_of
from rowmill.retries import RetryPlan, flat, read_retries

T = TypeVar("T")
HOUR_S = 3600.0
MILLION = 1e6


class NamedRow(msgspec.Struct, frozen=True):
    """A row as people know it."""

    place: str
    id: str
    """Empty: it has none, or none is known."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A run, told."""

    output: str
    looked: datetime.datetime
    """When."""
    status: Status
    record: Record
    places: Places
    history: History
    timeline: Timeline | None
    tally: Tally
    names: Names
    retries: list[RetryPlan]

    def named(self, keys: list[int]) -> list[NamedRow]:
        """Rows as people know them."""
        return [NamedRow(self.places.place_of(key), self.names.id_of(key)) for key in keys]

    @property
    def starts(self) -> list[Start]:
        """Starts of workers, the earliest first."""
        return self.history.starts

    @property
    def planned(self) -> Planned | None:
        """The plan as it was last told."""
        return _last(start.planned for start in self.starts)

    @property
    def ready(self) -> EngineReady | None:
        """The engine as it was last opened."""
        return _last(start.ready for start in self.starts)

    @property
    def summary(self) -> Summary | None:
        """How the last start that came to an end ended."""
        return _last(start.summary for start in self.starts)

    @property
    def forecast(self) -> Forecast | None:
        """What was said before."""
        if self.summary is not None and self.summary.forecast is not None:
            return self.summary.forecast
        return self.planned.said if self.planned is not None else None

    @property
    def has_samples(self) -> bool:
        """Whether workers wrote down what runs write down now."""
        return any(start.began is not None for start in self.starts)

    @property
    def asked_s(self) -> float:
        """Time in which rows were asked: no engine starting, no results being written; of workers side by side, about."""
        if not self.history.worker_seconds:
            return 0.0
        asked = sum(start.last.seconds for start in self.starts if start.last is not None)
        return self.history.seconds * min(1.0, asked / self.history.worker_seconds)

    @property
    def verdict(self) -> Verdict | None:
        """What most of the rows waited for: a start of a few rows, as of a retry, says little of the run."""
        told = [start for start in self.starts if start.verdict and start.verdict.station]
        rows = Counter[str]()
        for start in told:
            rows[start.verdict.station if start.verdict else ""] += start.num_rows
        if not rows:
            return None
        ((station, _),) = rows.most_common(1)
        of_it = [start for start in told if start.verdict and start.verdict.station == station]
        found = max(of_it, key=lambda start: start.num_rows).verdict
        if found is None or len(told) == 1:
            return found
        says = f"{found.says} (so {len(of_it):,} of {len(told):,} starts)"
        return msgspec.structs.replace(found, says=says)

    @property
    def rows_s(self) -> float:
        """Rows a second while rows were asked, by what workers wrote down."""
        return sum(start.num_rows for start in self.starts) / (self.asked_s or float("inf"))

    @property
    def tokens_s(self) -> float:
        """Tokens of prompts and answers likewise."""
        lasts = [start.last for start in self.starts if start.last is not None]
        tokens = sum(last.prompt_tokens + last.output_tokens for last in lasts)
        return tokens / (self.asked_s or float("inf"))

    @property
    def num_done(self) -> int:
        """Rows with an outcome."""
        return self.status.ok + self.status.failed

    @property
    def ended(self) -> str:
        """Wall clock of the last thing that is known of it, ISO 8601; empty where nothing is."""
        last = max((start.ended_at for start in self.starts), default=0.0)
        moment = datetime.datetime.fromtimestamp(last, datetime.UTC)
        return moment.isoformat(timespec="seconds") if last else ""

    @property
    def settings(self) -> dict[str, object]:
        """What the job said, by dotted key."""
        return flat(self.record.job)

    @property
    def cost(self) -> Cost | None:
        """What it cost; None where no price was given."""
        return cost_of(self)


class Cost(msgspec.Struct, frozen=True):
    """Money."""

    amount: float
    how: str
    """What it is made of, in words."""


def cost_of(account: Account) -> Cost | None:
    """What a run has cost, by the prices of its job."""
    prices = account.record.job.get("run", {})
    hour, parts, price = prices.get("gpu_hour_price") or 0.0, [], 0.0
    if hour:
        hours = account.history.worker_seconds / HOUR_S
        gpus = max([len(s.ready.gpus) for s in account.starts if s.ready is not None] or [1])
        price += hours * max(gpus, 1) * hour
        parts.append(f"{hours:.3g} hours x {max(gpus, 1)} at {hour:g}")
    for name, tokens in (
        ("prompt", account.status.prompt_tokens),
        ("output", account.status.output_tokens),
    ):
        million = prices.get(f"{name}_million_price") or 0.0
        if million:
            price += tokens / MILLION * million
            parts.append(f"{tokens:,} {name} tokens at {million:g} a million")
    if not parts:
        return None
    told = account.summary.cost if account.summary is not None else 0.0
    is_over = account.status.state in ("finished", "answered")
    return Cost(told if told and is_over else price, ", ".join(parts))


def _last(found: Iterable[T | None]) -> T | None:
    return next((one for one in reversed(list(found)) if one is not None), None)


class Looking:
    """A run that is looked at again and again: what was read once is kept."""

    def __init__(self, output: str) -> None:
        self.output = output
        self._tallying, self._names = Tallying(), Names()

    def look(self) -> Account:
        """The run as it is now.

        Raises:
            ConfigError: there is none.
            StorageError: it cannot be read.
        """
        view = open_view(self.output)
        tally = self._tallying.look(view)
        shown = [*tally.failures.values(), tally.truncated, tally.violations]
        self._names.look(view, (key for rows in shown for key in rows.keys))
        history = history_of(view)
        return Account(
            output=self.output,
            looked=datetime.datetime.now(datetime.UTC),
            status=status_of(view, tally.counts, self.output),
            record=view.record,
            places=view.places,
            history=history,
            timeline=timeline_of(view, history),
            tally=tally,
            names=self._names,
            retries=read_retries(view.storage),
        )


def account_of(output: str) -> Account:
    """A run as it is now. Raises: as `Looking.look`."""
    return Looking(output).look()
