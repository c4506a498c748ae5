"""What is known of the rows, a model on GPUs -> the forecast: hits, seconds, their interval, and what each lever brings.

Promises: one forecast for `check`, the run and its report; every figure says what it rests on.
Knows nothing of: how it is shown.
Source: seconds against H200 runs in benchmarks/RESULTS.md: within 25 % where nothing was fitted.
"""

from __future__ import annotations

import msgspec

from rowmill.forecast.bounds import Bounds, Totals, bounds_of
from rowmill.forecast.engine import Played, Settings, play
from rowmill.forecast.gathered import Gathered
from rowmill.size.fit import Fit
from rowmill.size.gpus import Gpu
from rowmill.size.pool import Budget
from rowmill.size.shape import ModelShape
from rowmill.size.steps import StepModel
from rowmill.size.work import DECODE_WEIGHT

ERROR = 0.25
"""What a forecast was off by, at the most, where lengths of answers were known."""
TOKENIZE_S = 3e-6
"""Of one processor, for a token of a prompt."""
EDGES_S = 0.4
"""Before the first row reaches an engine and after the last answer: reading, the first piece, publishing the rest."""


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """What a job will take on GPUs of one kind."""

    fit: Fit
    gpus: int
    bounds: Bounds
    seconds: float
    low_s: float
    high_s: float
    hit_rate: float
    """Share of prompt tokens found in the cache, in the planned order: that of the rows played, as far as all share so much."""
    file_seconds: float
    """The same rows in the order of the input."""
    file_hit_rate: float
    tail_s: float
    gpu_busy: float
    """Share of the time that the GPU computes."""
    preemptions: int
    sampled_rows: int
    """Rows that were played through; the others are taken to be like them, but for their lengths."""
    price: float = 0.0
    """In whatever `gpu_hour` is in; 0 where no price is known."""

    @property
    def gpu_hours(self) -> float:
        """GPUs times hours."""
        return self.gpus * self.seconds / 3600


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is to run, and how it is told."""

    shape: ModelShape
    gpu: Gpu
    fit: Fit
    budget: Budget
    gpus: int = 1
    """How many there are; a multiple of `fit.parallel`."""
    cores: float = 16.0
    """Processors for tokenising."""
    shares_prefixes: bool = True
    gpu_hour: float = 0.0
    """Price of one GPU for an hour."""

    @property
    def groups(self) -> int:
        """Groups of GPUs that share the rows."""
        return max(1, self.gpus // max(1, self.fit.parallel))

    @property
    def model(self) -> StepModel:
        """What a step costs there."""
        return StepModel(
            shape=self.shape,
            gpu=self.gpu,
            dtype=self.budget.dtype,
            quantization=self.budget.quantization,
            kv_dtype=self.budget.kv_dtype,
            parallel=max(1, self.fit.parallel),
        )


def foretell(
    gathered: Gathered, setting: Setting, *, rows: int | None = None, is_brief: bool = False
) -> Foretold:
    """Forecast a job.

    Args:
        rows: there are in all; None: those that were gathered.
        is_brief: without the order of the input and the range that unknown lengths leave.
    """
    more = (rows or gathered.totals.rows) / gathered.totals.rows
    bounds = _bounds(gathered, setting, more)
    planned, seconds = _played(gathered, setting, bounds, more=more)
    as_read, file_seconds = planned, seconds
    low_s = high_s = seconds
    if not is_brief:
        if not gathered.is_as_read:
            as_read, file_seconds = _played(gathered, setting, bounds, more=more, as_read=True)
        if gathered.low.answer_tokens < gathered.high.answer_tokens:
            _, low_s = _played(gathered, setting, bounds, "low", more=more)
            _, high_s = _played(gathered, setting, bounds, "high", more=more)
    return Foretold(
        fit=setting.fit,
        gpus=setting.groups * max(1, setting.fit.parallel),
        bounds=bounds,
        seconds=seconds,
        low_s=min(low_s, seconds) * (1 - ERROR),
        high_s=max(high_s, seconds) * (1 + ERROR),
        hit_rate=min(planned.hit_rate, bounds.hit_rate),
        file_seconds=file_seconds,
        file_hit_rate=min(as_read.hit_rate, bounds.hit_rate),
        tail_s=planned.tail_s,
        gpu_busy=min(1.0, planned.gpu_s / max(planned.seconds, 1e-9)),
        preemptions=planned.preemptions,
        sampled_rows=gathered.first_rows,
        price=setting.gpu_hour * setting.gpus * seconds / 3600,
    )


def _bounds(gathered: Gathered, setting: Setting, more: float) -> Bounds:
    bounds = bounds_of(
        gathered.totals,
        gathered.distinct.at_least(),
        setting.model,
        seats=setting.fit.seats * setting.fit.replicas,
        groups=setting.groups,
    )
    return msgspec.structs.replace(
        bounds,
        compute_s=bounds.compute_s * more,
        cache_read_s=bounds.cache_read_s * more,
        steps_s=bounds.steps_s * more,
    )


def _played(
    gathered: Gathered,
    setting: Setting,
    bounds: Bounds,
    which: str = "expected",
    *,
    more: float,
    as_read: bool = False,
) -> tuple[Played, float]:
    """The rows kept, played through, and seconds for all."""
    told = Settings(
        seats=setting.fit.seats,
        step_tokens=setting.fit.step_tokens,
        pool_tokens=setting.fit.pool_tokens,
        shares_prefixes=setting.shares_prefixes,
    )
    fed = gathered.fed(setting.fit.replicas, which=which, as_read=as_read)
    found = play(fed, told, setting.model)
    share = more * _times_the_work(found, gathered.totals_of(which), bounds) / setting.groups
    # The tail comes once, the rest as often as there is work.
    on_engines = max(0.0, found.seconds - found.tail_s) * share + found.tail_s
    tokenising = TOKENIZE_S * more * gathered.totals.prompt_tokens / setting.cores
    return found, EDGES_S + max(on_engines, tokenising)


def _times_the_work(played: Played, totals: Totals, bounds: Bounds) -> float:
    """How often all rows have the work of those played: they may be longer, and share less."""
    hit_rate = min(played.hit_rate, bounds.hit_rate)
    computed = totals.prompt_tokens * (1 - hit_rate)
    here = played.prompt_tokens - played.cached_tokens + DECODE_WEIGHT * played.output_tokens
    return (computed + DECODE_WEIGHT * max(totals.answer_tokens, totals.rows)) / here
