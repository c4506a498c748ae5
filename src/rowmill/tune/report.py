"""What tuning found -> lines for people, and advice on `max_tokens`.

Promises: every setting stands with its reason, every figure with what it rests on.
Knows nothing of: engines, files, terminals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.forecast.probe import Estimate, Probe
from rowmill.forecast.words import estimate_words
from rowmill.shown.spans import duration
from rowmill.tune.search import Tried

FEW_ROWS = 50
CUT_SHARE, ROOMY = 0.01, 0.5
ROUND_TOKENS = 32


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """How long the answers of trials were."""

    rows: int = 0
    p50: int = 0
    p90: int = 0
    p99: int = 0
    longest: int = 0
    limit: int = 0
    """Greatest limit in force; 0: there was none."""
    cut_share: float = 0.0
    """Answers that a limit ended."""
    cut_tokens_share: float = 0.0
    """Answer tokens that went into those."""

    def advice(self) -> Iterator[str]:
        """What to make of it."""
        if self.rows < FEW_ROWS or not self.limit:
            return
        told = (
            f"of {self.rows:,} answers half have {self.p50:,} tokens, 99% at most {self.p99:,}"
        )
        if self.cut_share > CUT_SHARE:
            yield (
                f"max_tokens: {told}; {self.cut_share:.1%} are cut at a limit of {self.limit:,}, and"
                f" {self.cut_tokens_share:.0%} of all answer tokens go into those: raise it if they are to end by"
                " themselves, lower it if they never do"
            )
        elif self.longest <= ROOMY * self.limit:
            enough = -(-int(1.2 * self.longest) // ROUND_TOKENS) * ROUND_TOKENS
            yield (
                f"max_tokens: {told}, the longest {self.longest:,}: {enough:,} would be enough where {self.limit:,} are"
                " allowed; it costs nothing while answers end by themselves, and bounds one that does not"
            )


def lengths_of(
    outputs: npt.NDArray[np.int64], cut: npt.NDArray[np.bool_], limit: int
) -> Lengths:
    """From tokens of answers, and which of them a limit ended. Shapes: both R."""
    if not len(outputs) or not outputs.sum():
        return Lengths()
    p50, p90, p99 = np.percentile(outputs, (50, 90, 99), method="nearest").tolist()
    return Lengths(
        rows=len(outputs),
        p50=p50,
        p90=p90,
        p99=p99,
        longest=int(outputs.max()),
        limit=limit,
        cut_share=float(cut.mean()),
        cut_tokens_share=float(outputs[cut].sum() / outputs.sum()),
    )


class Tuned(msgspec.Struct, kw_only=True):
    """What tuning found."""

    engine: str = ""
    tried: list[Tried] = []
    starts: int = 0
    chosen: dict[str, tuple[Any, str]] = {}
    """Setting -> value and reason; empty: those of the job are best."""
    changes_answers: bool = False
    """Whether a setting that changes answers is among them."""
    probe: Probe | None = None
    estimate: Estimate | None = None
    lengths: Lengths = Lengths()
    rows_kept: int = 0
    """Rows of trials that are results of the job."""
    rows_dropped: int = 0
    """Rows of trials that another setting would answer otherwise."""
    seconds: float = 0.0
    notes: list[str] = []
    written: str = ""
    """The job file that has the settings now."""
    exit_code: int = 0

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"engine    {self.engine}"
        yield from (f"note      {note}" for note in self.notes)
        yield from (f"tried     {line}" for line in table(self.tried))
        yield (
            f"rows      {self.rows_kept:,} rows of trials are results of the job"
            + (
                f", {self.rows_dropped:,} are not: other settings answered them"
                if self.rows_dropped
                else ""
            )
        )
        if not self.chosen and self.tried:
            yield "chosen    the settings of the job are as good as any that were tried"
        yield from (
            f"chosen    engine.{name} = {value}: {why}"
            for name, (value, why) in self.chosen.items()
        )
        if self.estimate is not None and self.probe is not None:
            words = estimate_words(self.estimate, about=self.probe.cost.about)
            yield f"left      {self.probe.rows:,} rows in {words}"
        yield from (f"advice    {text}" for text in self.lengths.advice())
        if self.written:
            yield f"written   {self.written}"


HEAD = (
    "settings",
    "rows in flight",
    "work/s",
    "+-",
    "rows/s",
    "tokens/s",
    "cached",
    "start",
    "",
)


def table(tried: list[Tried]) -> Iterator[str]:
    """What was tried, in columns."""
    rows = [HEAD, *map(_cells, tried)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if i in (0, len(HEAD) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


def _cells(one: Tried) -> tuple[str, ...]:
    name = (
        ", ".join(f"{key}={value}" for key, value in one.changes.items()) or "as the job says"
    )
    end = one.verdict if one.is_kept or not one.measured else f"{one.verdict}; rows not kept"
    if one.measured is None:
        return (name, "", "", "", "", "", "", "", end)
    found = one.measured
    return (
        name,
        f"{one.in_flight:,}",
        f"{found.rate.mean:,.0f}",
        f"{found.rate.share:.1%}",
        f"{found.rows_s:,.1f}",
        f"{found.tokens_s:,.0f}",
        f"{found.hit_rate:.0%}",
        duration(one.start_s) if one.start_s else "",
        end,
    )
