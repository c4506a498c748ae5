"""Values -> plots: places of curves, bars and ticks in percent of the area, words and numbers beside them.

A plot has no size of its own: it is as wide as the page lets it be, and its letters stay as they are.
Promises: each plot has a title, a description, both axes named with their units, and its numbers as a table.
Knows nothing of: HTML, runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rowmill.report.lengths import Bin
from rowmill.report.page import numbers

SPAN = 1000.0
"""Curves are drawn in a square of this side, which is stretched."""
MAX_TICKS = 5
CLOCKS = (
    (60.0, 1.0, "seconds"),
    (3600.0, 60.0, "minutes"),
    (2 * 86400.0, 3600.0, "hours"),
    (math.inf, 86400.0, "days"),
)
"""(up to so many seconds, seconds of a unit, its name)."""

Values = Sequence[float | None]
Shown = Callable[[float], str]


class Tick(msgspec.Struct, frozen=True):
    """A place on an axis."""

    at: float
    """Percent, from the left or from the top."""
    label: str


class Curve(msgspec.Struct, frozen=True):
    """A line of a plot."""

    name: str
    style: int
    path: str
    """As SVG draws it, in a square of `SPAN`."""
    points: int
    told: str
    """Its middle, in words."""


class Bar(msgspec.Struct, frozen=True):
    """A bar of a plot, in percent of the area."""

    x: float
    y: float
    width: float
    height: float
    told: str


class Table(msgspec.Struct, frozen=True):
    """Numbers in words."""

    heads: list[str]
    rows: list[list[str]]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """All that is drawn and said of one plot."""

    key: str
    title: str
    description: str
    x_label: str
    y_label: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    curves: list[Curve] = []
    bars: list[Bar] = []
    pauses: list[Tick] = []
    table: Table


class Axis(msgspec.Struct, frozen=True):
    """A length or a time, in units that give round numbers."""

    end: float
    unit: float = 1.0
    shown: Shown = numbers.short

    def at(self, value: float) -> float:
        """Percent of its length."""
        return 100 * min(value / self.end, 1.0) if self.end else 0.0

    def ticks(self, most: int = MAX_TICKS) -> list[float]:
        """Round values from 0 on."""
        step = round_step(self.end / self.unit / most) * self.unit
        return [step * i for i in range(int(self.end / step + 1e-9) + 1)]

    def label(self, value: float) -> str:
        """A value in its unit."""
        return self.shown(value / self.unit)


def round_step(least: float) -> float:
    """The least of ..., 0.1, 0.2, 0.5, 1, 2, 5, ... that is no less."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def time_axis(seconds: float) -> tuple[Axis, str]:
    """An axis of time worked, and what it is called."""
    for most, unit, name in CLOCKS:
        if seconds <= 2 * most:
            return Axis(seconds, unit), f"{name} of work"
    raise AssertionError


def over_time(
    key: str,
    title: str,
    lines: Mapping[str, tuple[Values, float]],
    *,
    seconds: float,
    y_label: str,
    shown: Shown = numbers.amount,
    tick: Shown = numbers.short,
    unit: float = 1.0,
    top: float | None = None,
    pauses: Sequence[float] = (),
) -> Plot:
    """Lines over the time of a run.

    Args:
        lines: name -> (a value for each stretch, seconds of a stretch).
        shown: a value in words.
        tick: a value of the axis in words, without its unit.
        unit: of the axis, in units of the values.
        top: of the axis; None: the greatest value.
    """
    axis, x_label = time_axis(seconds)
    values = [v for told, _ in lines.values() for v in told if v is not None]
    y_axis = Axis(top or _end_of(max(values, default=0.0), unit), unit, tick)
    curves = [
        _curve(name, style, told, step, axis, y_axis, shown)
        for style, (name, (told, step)) in enumerate(lines.items())
    ]
    means = "; ".join(f"{curve.name}: {curve.told}" for curve in curves)
    return Plot(
        key=key,
        title=title,
        description=f"{y_label} over {x_label}. {means}.",
        x_label=x_label,
        y_label=y_label,
        x_ticks=[Tick(axis.at(at), axis.label(at)) for at in axis.ticks()],
        y_ticks=[Tick(100 - y_axis.at(at), y_axis.label(at)) for at in y_axis.ticks(4)],
        curves=curves,
        pauses=[Tick(axis.at(at), "") for at in pauses],
        table=_table_of_lines(lines, axis, x_label, shown),
    )


def _end_of(greatest: float, unit: float) -> float:
    """The end of an axis: a little over the greatest value, a round number."""
    least = greatest * 1.02 / unit
    step = round_step(least / 4) if least else 1.0
    return max(1, math.ceil(least / step)) * step * unit


def _curve(
    name: str, style: int, told: Values, step: float, axis: Axis, y_axis: Axis, shown: Shown
) -> Curve:
    parts, points, is_on = [], 0, False
    for i, value in enumerate(told):
        if value is None:
            is_on = False
            continue
        middle = (i * step + min((i + 1) * step, max(axis.end, i * step))) / 2
        x, y = SPAN * axis.at(middle) / 100, SPAN * (1 - y_axis.at(value) / 100)
        parts.append(f"{'L' if is_on else 'M'}{x:.1f} {y:.1f}" + ("" if is_on else "h.1"))
        points, is_on = points + 1, True
    values = [value for value in told if value is not None]
    mean = sum(values) / len(values) if values else 0.0
    said = (
        f"{shown(mean)} on average, {shown(min(values))} to {shown(max(values))}"
        if values
        else "nothing told"
    )
    return Curve(name, style, "".join(parts), points, said)


def _table_of_lines(
    lines: Mapping[str, tuple[Values, float]], axis: Axis, x_label: str, shown: Shown
) -> Table:
    steps = {step for _, step in lines.values()}
    if len(steps) != 1:
        return Table(
            ["line", f"{x_label}, from", "value"],
            [
                [name, axis.label(i * step), shown(value)]
                for name, (told, step) in lines.items()
                for i, value in enumerate(told)
                if value is not None
            ],
        )
    (step,) = steps
    longest = max((len(told) for told, _ in lines.values()), default=0)
    rows = [
        [
            axis.label(i * step),
            *(_cell(told[i] if i < len(told) else None, shown) for told, _ in lines.values()),
        ]
        for i in range(longest)
        if any(i < len(told) and told[i] is not None for told, _ in lines.values())
    ]
    return Table([f"{x_label}, from", *lines], rows)


def _cell(value: float | None, shown: Shown) -> str:
    return "not told" if value is None else shown(value)


def histogram(
    key: str,
    title: str,
    bins: Sequence[Bin],
    *,
    x_label: str,
    other: Sequence[Bin] = (),
    names: tuple[str, str] = ("this run", "the other run"),
) -> Plot:
    """How often each length came; beside another run's, in shares of each one's rows.

    Args:
        other: of the same bins, or none.
    """
    width = bins[0].stop or 1
    axis = Axis(float(len(bins) * width))
    in_all = max(1, sum(b.rows for b in bins))
    scale = 1 / in_all if other else 1.0
    heights = [b.rows * scale for b in bins]
    others = [b.rows / max(1, sum(o.rows for o in other)) for b in other]
    y_axis = Axis(
        _end_of(max([*heights, *others]), 0.01 if other else 1.0), 0.01 if other else 1.0
    )
    bars = [
        Bar(
            x=axis.at(b.low),
            y=100 - y_axis.at(height),
            width=100 / len(bins),
            height=y_axis.at(height),
            told=f"{_span(b)}: {numbers.whole(b.rows)} rows",
        )
        for b, height in zip(bins, heights, strict=True)
    ]
    y_label = "% of the rows" if other else "rows"
    heads = (
        [x_label, f"rows of {names[0]}", f"rows of {names[1]}"] if other else [x_label, "rows"]
    )
    return Plot(
        key=key,
        title=title,
        description=f"{y_label} by {x_label}, in {len(bins)} bars of {numbers.whole(width)}.",
        x_label=x_label,
        y_label=y_label,
        x_ticks=[Tick(axis.at(at), axis.label(at)) for at in axis.ticks()],
        y_ticks=[Tick(100 - y_axis.at(at), y_axis.label(at)) for at in y_axis.ticks(4)],
        bars=bars,
        curves=[_steps(names[1], others, y_axis)] if other else [],
        table=Table(
            heads,
            [
                [
                    _span(b),
                    numbers.whole(b.rows),
                    *([numbers.whole(other[i].rows)] if other else []),
                ]
                for i, b in enumerate(bins)
            ],
        ),
    )


def _span(found: Bin) -> str:
    if found.stop is None:
        return f"{numbers.whole(found.low)} and more"
    if found.stop == found.low + 1:
        return numbers.whole(found.low)
    return f"{numbers.whole(found.low)} to {numbers.whole(found.stop - 1)}"


def _steps(name: str, heights: Sequence[float], y_axis: Axis) -> Curve:
    side = SPAN / len(heights)
    path = "M0 1000"
    for i, height in enumerate(heights):
        path += f"V{SPAN * (1 - y_axis.at(height) / 100):.1f}H{(i + 1) * side:.1f}"
    return Curve(name, 1, f"{path}V1000", len(heights), "the line")
