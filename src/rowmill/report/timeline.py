"""Samples of all workers -> what went on over time: values in stretches of one length, on the axis of time worked.

Promises: what was counted between two samples is spread evenly between them, and no row or token is lost; rates of
several workers are summed, shares are means over them.
Knows nothing of: plots, how samples come about.
Memory: `MOST` numbers a line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
import numpy as np

from rowmill.report.history import History, Samples, Start, each_samples
from rowmill.report.run import View
from rowmill.telemetry import GpuUse, Sample

MOST = 120
"""Stretches: as many as a page can show apart."""
ROUND_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14400)
DAY_S = 86400
MAX_GPUS = 3
"""GPUs with a line of their own; of more, three lines tell: beside another run, that are as many as can be told apart."""

OTHERS = {"other": "other processes"}

Way = Literal["flow", "level", "share"]
"""What was counted: summed up and divided by time. What stood: summed over workers. A share: the mean over workers."""


class Track(msgspec.Struct, frozen=True):
    """One quantity over time."""

    way: Way
    lines: dict[str, list[float | None]]
    """By name; None where nobody told."""


class Timeline(msgspec.Struct, frozen=True):
    """What went on, in stretches of `step_s`; the last one may be shorter."""

    step_s: float
    seconds: float
    tracks: dict[str, Track]

    @property
    def number(self) -> int:
        """Of stretches."""
        return num_stretches(self.seconds, self.step_s)

    def lines(self, name: str) -> dict[str, list[float | None]]:
        """Lines of a quantity; none where nobody told of it."""
        track = self.tracks.get(name)
        return track.lines if track is not None else {}


def num_stretches(seconds: float, step_s: float) -> int:
    """How many stretches a time has."""
    return max(1, int(np.ceil(seconds / step_s)))


def step_of(seconds: float) -> float:
    """A round length, with at most `MOST` stretches."""
    least = seconds / MOST
    days = DAY_S * np.ceil(least / DAY_S)
    return float(next((step for step in ROUND_S if step >= least), days))


class _Line:
    """Sums of one line in each stretch."""

    def __init__(self, number: int) -> None:
        self.amounts = np.zeros(number)
        self.covered_s = np.zeros(number)
        """Worker-seconds in which it was told."""


class Drawing:
    """Lines while samples are added."""

    def __init__(self, seconds: float) -> None:
        self.step_s = step_of(seconds)
        self.seconds = seconds
        self._number = num_stretches(seconds, self.step_s)
        self._lines: dict[tuple[str, Way], dict[str, _Line]] = {}

    def add(
        self, track: str, way: Way, name: str, span: tuple[float, float], value: float
    ) -> None:
        """Spread a value over a time: of a flow, the amount; else what was the mean in it."""
        start, stop = span
        if stop <= start:
            return
        lines = self._lines.setdefault((track, way), {})
        line = lines.get(name) or lines.setdefault(name, _Line(self._number))
        first = min(int(start / self.step_s), self._number - 1)
        last = min(int(np.ceil(stop / self.step_s)), self._number)
        edges = np.clip(np.arange(first, last + 1) * self.step_s, start, stop)
        edges[-1] = stop  # what is a hair beyond the end is of the last
        inside = np.diff(edges)
        line.amounts[first:last] += value * (
            inside / (stop - start) if way == "flow" else inside
        )
        line.covered_s[first:last] += inside

    def covered_s(self, track: str, name: str) -> list[float]:
        """Worker-seconds in which a line was told, in each stretch."""
        found = [lines[name] for (key, _), lines in self._lines.items() if key == track]
        return [float(seconds) for line in found for seconds in line.covered_s]

    def timeline(self) -> Timeline:
        """What was added."""
        return Timeline(
            self.step_s,
            self.seconds,
            {
                track: Track(
                    way, {name: self._values(way, line) for name, line in lines.items()}
                )
                for (track, way), lines in self._lines.items()
            },
        )

    def _values(self, way: Way, line: _Line) -> list[float | None]:
        # A stretch in which one worker began or ended counts as far as it was told of, not as if all had stood still.
        over = line.covered_s if way == "share" else np.minimum(line.covered_s, self.step_s)
        told = line.covered_s > 0
        values = line.amounts / np.where(told, over, 1)
        return [
            float(value) if is_told else None
            for value, is_told in zip(values, told, strict=True)
        ]


def timeline_of(view: View, history: History) -> Timeline | None:
    """What went on in a run; None where no sample was written."""
    drawing = Drawing(history.seconds)
    num_samples = 0
    for start, samples in each_samples(view, history):
        num_samples += len(samples)
        for (before_at, before), (at, now) in itertools.pairwise(_with_beginning(samples)):
            span = (
                history.axis_of(start.began_at + before_at),
                history.axis_of(start.began_at + at),
            )
            _add(drawing, span, before, now)
        _add_machine(drawing, history, start, samples)
    return drawing.timeline() if num_samples else None


def _add_machine(drawing: Drawing, history: History, start: Start, samples: Samples) -> None:
    """What processes and the machine did, which is counted from a worker's beginning on, the engine's start in it."""
    for (before_at, before), (at, now) in itertools.pairwise([(0.0, Sample()), *samples]):
        span = tuple(history.axis_of(start.began_at + moment) for moment in (before_at, at))
        for track, name, amount in _machine_flows(before, now):
            drawing.add(track, "flow", name, (span[0], span[1]), amount)


def _with_beginning(samples: Samples) -> Samples:
    """With what a worker starts from, before its first sample."""
    if not samples:
        return []
    at, first = samples[0]
    # Failures before a resume and in its first second cannot be told apart: they count as before.
    failed = first.failed if first.resumed else 0
    zero = Sample(resumed=first.resumed, done=first.resumed, failed=failed)
    return [(at - min(at, first.seconds), zero), *samples]


def _add(drawing: Drawing, span: tuple[float, float], before: Sample, now: Sample) -> None:
    for track, name, amount in _flows(before, now):
        drawing.add(track, "flow", name, span, amount)
    for track, name, value in _levels(now):
        drawing.add(track, "level", name, span, value)
    for track, name, value in _shares(before, now):
        drawing.add(track, "share", name, span, value)


Told = Iterator[tuple[str, str, float]]


def _flows(before: Sample, now: Sample) -> Told:
    yield "rows", "rows", now.done - before.done
    yield "failed", "failed", now.failed - before.failed
    yield "tokens", "prompts", now.prompt_tokens - before.prompt_tokens
    yield "tokens", "answers", now.output_tokens - before.output_tokens


def _machine_flows(before: Sample, now: Sample) -> Told:
    for name in now.cpu_s:
        if "/" not in name:
            spent = now.cpu_s[name] - before.cpu_s.get(name, 0.0)
            yield "cpu", _process(name), max(0.0, spent)
    if now.disk_read_bytes or now.disk_write_bytes:
        yield "disk", "read", now.disk_read_bytes - before.disk_read_bytes
        yield "disk", "written", now.disk_write_bytes - before.disk_write_bytes
    if now.net_in_bytes or now.net_out_bytes:
        yield "net", "received", now.net_in_bytes - before.net_in_bytes
        yield "net", "sent", now.net_out_bytes - before.net_out_bytes


def _process(name: str) -> str:
    """A process under a name for people: all of an engine together."""
    return "engine" if name.startswith("engine") else OTHERS.get(name, name)


def _levels(now: Sample) -> Told:
    yield "in_flight", "in flight", now.in_flight
    if now.in_flight_target:
        yield "in_flight", "aimed at", now.in_flight_target
    if now.seats:
        yield "in_flight", "seats", float(now.seats)
    for name, rows in now.waiting.items():
        yield "waiting", name, rows
    for name in ("running", "waiting"):
        if "running" in now.engine:
            yield "engine_rows", name, now.engine.get(name, 0.0)
    memory = {"rowmill": 0.0, "engine": 0.0}
    for name, taken in now.memory_bytes.items():
        key = _process(name)
        memory[key] = memory.get(key, 0.0) + taken
    if now.memory_bytes:
        yield from (("memory", name, taken) for name, taken in memory.items())


def _shares(before: Sample, now: Sample) -> Told:
    if "kv_use" in now.engine:
        yield "kv_use", "KV cache", now.engine["kv_use"]
    prompts = now.prompt_tokens - before.prompt_tokens
    if now.cached_tokens and prompts > 0:
        yield "hit_rate", "measured", (now.cached_tokens - before.cached_tokens) / prompts
    elif now.engine.get("hit_rate"):
        yield "hit_rate", "measured", now.engine["hit_rate"]
    yield from _gpu_shares(now.gpus)


def _gpu_shares(gpus: list[GpuUse]) -> Told:
    for track, values in (
        ("gpu_use", [gpu.use for gpu in gpus]),
        ("gpu_memory", [float(gpu.memory_bytes) for gpu in gpus]),
        ("gpu_power", [gpu.power_w for gpu in gpus]),
    ):
        if len(gpus) > MAX_GPUS:
            yield track, "mean", sum(values) / len(values)
            yield track, "least", min(values)
            yield track, "greatest", max(values)
        else:
            for gpu, value in zip(gpus, values, strict=True):
                yield track, f"GPU {gpu.index}", value
    yield from _counted("tensor cores", (gpu.tensor_use for gpu in gpus))
    yield from _counted("memory bandwidth", (gpu.bandwidth_use for gpu in gpus))


def _counted(name: str, uses: Iterable[float]) -> Told:
    """A mean over the GPUs whose driver counts it."""
    told = [use for use in uses if use >= 0]
    if told:
        yield "gpu_inside", name, sum(told) / len(told)
