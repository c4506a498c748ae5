"""Runs -> a Markdown table: medians, spreads, ratios of pairs.

Promises: a run that is not complete is in no figure; a ratio is the median of ratios within rounds, never one of medians.
Knows nothing of: how runs were made.
Memory: the runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rowmill.bench.contenders import BASELINE, CONTENDERS
from rowmill.bench.records import Measured, Resident, Run

GIB = 1 << 30
HEADS = (
    "contender",
    "median s (range)",
    "runs",
    "rows/s",
    "tokens/s, in + out",
    "cached",
    f"beside {BASELINE}",
    "beside the best other",
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One contender's figures."""

    contender: str
    runs: int
    """Complete ones."""
    invalid: int
    median_s: float = 0.0
    least_s: float = 0.0
    most_s: float = 0.0
    rows_s: float = 0.0
    tokens_s: float = 0.0
    cached_share: float = 0.0
    """Of prompt tokens."""
    beside_baseline: float | None = None
    """How many times as fast as `LLM.generate` in file order; None where they share no round."""
    best_other: str = ""
    """The contender of the least median among the others."""
    beside_best: float | None = None


def lines_of(measured: Measured) -> list[Line]:
    """A line a contender, in their own order; those without any run are left out."""
    valid = [run for run in measured.runs if not run.invalid]
    by_name = {
        name: {run.round: run for run in valid if run.contender == name} for name in CONTENDERS
    }
    medians = {
        name: statistics.median(run.seconds for run in runs.values())
        for name, runs in by_name.items()
        if runs
    }
    return [
        _line(name, by_name, medians, measured)
        for name in CONTENDERS
        if any(run.contender == name for run in measured.runs)
    ]


def _line(
    name: str,
    by_name: Mapping[str, Mapping[int, Run]],
    medians: Mapping[str, float],
    measured: Measured,
) -> Line:
    own = by_name[name]
    invalid = sum(run.contender == name for run in measured.runs) - len(own)
    if not own:
        return Line(contender=name, runs=0, invalid=invalid)
    runs = list(own.values())
    seconds = [run.seconds for run in runs]
    others = {other: median for other, median in medians.items() if other != name}
    best = min(others, key=others.__getitem__, default="")
    return Line(
        contender=name,
        runs=len(runs),
        invalid=invalid,
        median_s=medians[name],
        least_s=min(seconds),
        most_s=max(seconds),
        rows_s=statistics.median(run.rows / run.seconds for run in runs),
        tokens_s=statistics.median(
            (run.prompt_tokens + run.output_tokens) / run.seconds for run in runs
        ),
        cached_share=statistics.median(
            run.cached_tokens / max(run.prompt_tokens, 1) for run in runs
        ),
        beside_baseline=None if name == BASELINE else ratio(own, by_name.get(BASELINE, {})),
        best_other=best,
        beside_best=ratio(own, by_name[best]) if best else None,
    )


def ratio(own: Mapping[int, Run], other: Mapping[int, Run]) -> float | None:
    """How many times as fast as another: the median over the rounds in which both ran."""
    pairs = [
        other[number].seconds / run.seconds for number, run in own.items() if number in other
    ]
    return statistics.median(pairs) if pairs else None


def markdown(measured: Measured, machine: Mapping[str, Any]) -> str:
    """The table with what must stand beside it."""
    return "\n".join([*_head(measured, machine), "", *_table(measured), "", *_notes(measured)])


def _head(measured: Measured, machine: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {measured.title}"
    yield ""
    work = measured.work
    if work is not None:
        yield (
            f"{work.rows:,} rows, {work.prompt_tokens:,} prompt tokens, {work.output_tokens:,} output tokens;"
            f" {len(measured.seeds)} rounds, interleaved, another file each round, order rotated;"
            " file to file, engines open and warm."
        )
    told = ", ".join(f"`{name}={value}`" for name, value in measured.settings.items())
    yield f"Engine settings of all: {told or 'none'}."
    yield f"Machine: {machine['hardware']}. {machine['versions']}."


def _table(measured: Measured) -> Iterator[str]:
    yield f"| {' | '.join(HEADS)} |"
    yield f"|{'---|' * len(HEADS)}"
    for line in lines_of(measured):
        yield f"| {' | '.join(_cells(line))} |"


def _cells(line: Line) -> Iterator[str]:
    yield line.contender
    count = f"{line.runs}" + (f", {line.invalid} INVALID" if line.invalid else "")
    if not line.runs:
        yield from ("-", count, "-", "-", "-", "-", "-")
        return
    yield f"{line.median_s:.2f} ({line.least_s:.2f} to {line.most_s:.2f})"
    yield count
    yield f"{line.rows_s:,.0f}"
    yield f"{line.tokens_s:,.0f}"
    yield f"{line.cached_share:.0%}"
    yield _times(line.beside_baseline) if line.contender != BASELINE else "1"
    yield f"{_times(line.beside_best)} ({line.best_other})" if line.best_other else "-"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _notes(measured: Measured) -> Iterator[str]:
    for resident in measured.residents:
        yield f"- {', '.join(resident.contenders)}: {_told(resident)}"
    yield from _unequal(measured)
    for name, reason in measured.failed.items():
        yield f"- {name} took no further part: {reason}"
    for run in measured.runs:
        if run.invalid:
            yield f"- {run.contender}, round {run.round}: INVALID: {run.invalid}"
    if measured.stopped:
        yield f"- Ended early: {measured.stopped}."
    yield from _profiles(measured)


def _unequal(measured: Measured) -> Iterator[str]:
    """What engines took otherwise than others did."""
    for key in ("seats", "step_tokens", "kv_tokens", "dtype", "quantization"):
        taken = {str(one.about[key]) for one in measured.residents if key in one.about}
        if len(taken) > 1:
            yield f"- {key} differ: {', '.join(sorted(taken))}"


def _told(resident: Resident) -> str:
    parts = [f"started in {resident.start_s:.1f} s"]
    if resident.gpu_bytes:
        parts.append(f"{resident.gpu_bytes / GIB:.1f} GiB of GPU memory")
    parts += [f"{name} {_word(value)}" for name, value in resident.about.items() if value]
    return ", ".join(parts)


def _word(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _profiles(measured: Measured) -> Iterator[str]:
    """Where time went in the run of middle length."""
    profiled = sorted(
        (run for run in measured.runs if run.profile and not run.invalid),
        key=lambda run: run.seconds,
    )
    if not profiled:
        return
    run = profiled[len(profiled) // 2]
    yield f"- Profile of {run.contender}, round {run.round}, {run.seconds:.2f} s:"
    for name, value in (run.profile or {}).items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {part:g}" for key, part in value.items()) or "none"
        yield f"  - {name.replace('_', ' ')}: {value}"
