"""A job and its rows -> what else it could cost: other profiles, more GPUs, endpoints.

Promises: each way is played with the same rows; a price stands with where it is from; nothing is chosen.
Knows nothing of: how rows are read, how lines are shown.
Source: 1, 2, 4, 8 GPUs did 1.0, 1.9, 3.5 and 6.2 times as much, measured elsewhere with engines side by side.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rowmill.config import Job, PlanConfig
from rowmill.executors.profiles import profiled
from rowmill.forecast.foretold import Foretold
from rowmill.forecast.gathered import Gathered
from rowmill.prospect import Place, foretold_at, places_of, priced_at
from rowmill.rows import Limits
from rowmill.shown.spans import amount, duration
from rowmill.size.gpus import kind_of
from rowmill.size.prices import Prices, read_prices, told
from rowmill.size.profiles import PROFILES

SCALING = {1: 1.0, 2: 1.9, 4: 3.5, 8: 6.2}
HOUR_S, MILLION = 3600.0, 1e6


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to do a job."""

    name: str
    seconds: float
    gpu_hours: float
    cost: float
    """0 where no price is known."""
    million_tokens: float
    """Cost of a million tokens, prompts and answers."""

    def words(self, before: Way | None = None) -> str:
        """For a line; against another way."""
        faster = f" ({before.seconds / self.seconds:.1f}x)" if before is not None else ""
        cost = (
            f", {amount(self.cost)} ({self.million_tokens:.3g} a million tokens)"
            if self.cost
            else ""
        )
        return f"{self.name} {duration(self.seconds)}{faster}, {self.gpu_hours:.3g} GPU hours{cost}"


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """All ways that were looked at."""

    price: str = ""
    """Of a GPU for an hour, and where it is from."""
    profiles: list[Way] = []
    gpus: list[Way] = []
    deadline_s: float = 0.0
    apis: list[tuple[str, float, float]] = []
    """(name, at once, where a day is allowed)."""

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.price:
            yield f"price     {self.price}"
        if self.profiles:
            yield f"profiles  {'; '.join(way.words() for way in self.profiles)}"
        if len(self.gpus) > 1:
            first, *more = self.gpus
            told_ = [first.words(), *(way.words(first) for way in more)]
            yield f"gpus      {'; '.join(told_)}"
        if self.gpus:
            yield from self._advice()
        for name, at_once, batch in self.apis:
            later = f", {amount(batch)} as a batch within a day" if batch < at_once else ""
            yield f"endpoint  {name} asks {amount(at_once)}{later}"

    def _advice(self) -> Iterator[str]:
        """How many GPUs, by what they lose side by side and by when it is wanted."""
        cheapest = min(self.gpus, key=lambda way: way.gpu_hours)
        if not self.deadline_s:
            return
        in_time = [way for way in self.gpus if way.seconds <= self.deadline_s]
        if not in_time:
            fastest = min(self.gpus, key=lambda way: way.seconds)
            yield (
                f"advice    no number of GPUs up to {max(SCALING)} does it in"
                f" {duration(self.deadline_s)}; {fastest.name} come nearest"
            )
            return
        chosen = min(in_time, key=lambda way: way.gpu_hours)
        loss = chosen.gpu_hours / cheapest.gpu_hours - 1
        lost = f", {loss:.0%} more GPU hours than {cheapest.name}" if loss > 0.005 else ""
        yield f"advice    {chosen.name} for {duration(self.deadline_s)}{lost}"


def weigh(
    job: Job, gathered: Gathered, limits: Limits, *, deadline_h: float | None = None
) -> Weighed:
    """Look at other ways.

    Raises:
        ConfigError: the table of prices cannot be read.
    """
    places = places_of(job)
    prices = read_prices(job.run.prices)
    apis = [
        (name, price.of(*_tokens(gathered)), price.batch_share * price.of(*_tokens(gathered)))
        for name, price in prices.api.items()
    ]
    if len(places) != 1 or not gathered.totals.rows:
        return Weighed(apis=apis)
    place = places[0]
    return Weighed(
        price=_price(job, place, prices),
        profiles=list(_profiles(job, gathered, limits, place)),
        gpus=list(_gpus(job, gathered, limits, place)),
        deadline_s=(deadline_h or 0.0) * HOUR_S,
        apis=apis,
    )


def _price(job: Job, place: Place, prices: Prices) -> str:
    if job.run.gpu_hour_price:
        return f"{job.run.gpu_hour_price:.2f} an hour of one {place.gpu.name}: as given"
    found = prices.gpu.get(kind_of(place.gpu.name, place.gpu.memory_bytes))
    if found is None:
        return ""
    return f"{told(found, prices.currency)}: yours by `--gpu-hour` or `run.prices`"


def _profiles(job: Job, gathered: Gathered, limits: Limits, place: Place) -> Iterator[Way]:
    for name in PROFILES:
        tree = {**job.plan.model_dump(), "profile": name, "deadline_s": None}
        as_profiled = profiled(job.model_copy(update={"plan": PlanConfig.model_validate(tree)}))
        found = foretold_at(as_profiled, gathered, limits, place)
        if found is not None:
            yield _way(name, job, gathered, place, found, 1.0)


def _gpus(job: Job, gathered: Gathered, limits: Limits, place: Place) -> Iterator[Way]:
    """Numbers of GPUs, each with what engines side by side lose to each other."""
    for number, times in SCALING.items():
        here = msgspec.structs.replace(place, number=number, is_here=False)
        found = foretold_at(job, gathered, limits, here)
        if found is None or found.fit.parallel > number:
            continue
        groups = number // max(1, found.fit.parallel)
        lost = groups / SCALING.get(groups, times)
        yield _way(f"{number} GPU{'s' * (number > 1)}", job, gathered, here, found, lost)


def _way(
    name: str, job: Job, gathered: Gathered, place: Place, found: Foretold, lost: float
) -> Way:
    seconds = found.seconds * lost
    hours = found.gpus * seconds / HOUR_S
    cost = hours * priced_at(job, kind_of(place.gpu.name, place.gpu.memory_bytes))
    tokens = sum(_tokens(gathered))
    return Way(
        name=name,
        seconds=seconds,
        gpu_hours=hours,
        cost=cost,
        million_tokens=cost / tokens * MILLION if tokens else 0.0,
    )


def _tokens(gathered: Gathered) -> tuple[float, float]:
    return float(gathered.totals.prompt_tokens), float(gathered.totals.answer_tokens)
