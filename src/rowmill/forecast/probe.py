"""What a probe measured -> how long the rest of a job takes, with its interval; kept with the run.

Promises: the interval holds what the rate, the lengths of answers and the machine may still do, each told apart.
Knows nothing of: engines, files.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.forecast.learned import Learned

MACHINE_SHARE = 0.07
"""Two equal runs, one after the other on one machine, differ by so much: measured on an H200."""
HOUR_S, MILLION = 3600.0, 1e6


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a time on GPUs, and tokens, come to."""

    gpus: int = 1
    gpu_hour: float = 0.0
    prompt_million: float = 0.0
    output_million: float = 0.0
    about: str = ""
    """Where the price is from."""

    def of(self, seconds: float, prompt_tokens: float, output_tokens: float) -> float:
        """The sum; 0 where no price is known."""
        hours = seconds * self.gpus / HOUR_S
        tokens = prompt_tokens * self.prompt_million + output_tokens * self.output_million
        return hours * self.gpu_hour + tokens / MILLION


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how many GPU hours, how much."""

    seconds: float
    low_s: float
    high_s: float
    gpu_hours: float
    cost: float
    low_cost: float
    high_cost: float
    start_s: float = 0.0
    """Of the engine, on top."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What is known after trials."""

    made: str
    """When: ISO 8601, UTC."""
    settings: dict[str, Any]
    """Of the engine, that were measured: those that differ from the job's own at that time."""
    rate: float
    """Work a second, in tokens of a prompt."""
    rate_low: float
    rate_high: float
    work: float
    """Of the rows that were left."""
    work_error: float
    """Standard error of that."""
    rows: int
    """That were left."""
    prompt_tokens: float
    answer_tokens: float
    feeding_s: float = 0.0
    """What reading, tokenising and planning the rows that were left takes: no engine is faster than it is fed."""
    edges_s: float = 0.0
    """What filling and emptying the seats takes beyond the work done meanwhile."""
    start_s: float = 0.0
    cost: Cost = Cost()
    learned: Learned = msgspec.field(default_factory=Learned)

    def estimate(self, share: float = 1.0) -> Estimate:
        """What is left to do takes this.

        Args:
            share: of the work that was left when it was measured.
        """
        work = self.work * share
        seconds = max(work / self.rate, self.feeding_s * share) + self.edges_s
        rate_error = (self.rate_high - self.rate_low) / 2 / self.rate
        work_error = 1.96 * self.work_error / self.work if self.work else 0.0
        error = (rate_error**2 + work_error**2 + MACHINE_SHARE**2) ** 0.5
        prompts, answers = self.prompt_tokens * share, self.answer_tokens * share
        low, high = max(0.0, seconds * (1 - error)), seconds * (1 + error)
        told = [
            self.cost.of(one + self.start_s, prompts, answers) for one in (seconds, low, high)
        ]
        return Estimate(
            seconds=seconds,
            low_s=low,
            high_s=high,
            gpu_hours=self.cost.gpus * (seconds + self.start_s) / HOUR_S,
            cost=told[0],
            low_cost=told[1],
            high_cost=told[2],
            start_s=self.start_s,
        )
