"""Events -> what a person sees: a bar on a terminal, plain lines elsewhere, a summary at the end.

Promises: never ends or slows a run; ASCII words only; no text of any row.
Knows nothing of: files, engines, clocks other than the events' own and one for the pace of lines.
Memory: the last `PACE_S` seconds of counts.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TextIO

from rowmill.events import Forecast, Listener, Note, Planned, Progress, Summary
from rowmill.forecast.steady import NORMAL, steady
from rowmill.shown.spans import amount, duration
from rowmill.telemetry import Sample

LINE_EVERY_S = 10.0
"""Between plain lines: six a minute can still be read in a log of hours."""
PACE_S = 60.0
"""Rates are those of the last minute: long enough to be steady, short enough to see a change."""
TOP_ERRORS = 5
HOUR_S = 3600.0
MAX_SHOWN = 200

Write = Callable[[str], None]


class Pace:
    """Rows and tokens a second over the last `PACE_S` seconds of events."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])
        self._work: deque[tuple[float, float]] = deque([(0.0, 0.0)])

    def add(self, event: Progress) -> None:
        """Take an event in."""
        tokens = event.prompt_tokens + event.output_tokens
        if event.seconds < self._seen[-1][0]:
            # The engine's start was taken off the time: begin anew.
            self._seen.clear()
            self._work.clear()
        self._work.append((event.seconds, event.work_done))
        while len(self._work) > 2 and event.seconds - self._work[1][0] >= PACE_S:
            self._work.popleft()
        self._seen.append((event.seconds, event.done - event.resumed, tokens))
        while len(self._seen) > 2 and event.seconds - self._seen[1][0] >= PACE_S:
            self._seen.popleft()

    def rates(self) -> tuple[float, float]:
        """(rows, tokens) a second; zeros before there is time to speak of."""
        (start, rows0, tokens0), (stop, rows, tokens) = self._seen[0], self._seen[-1]
        seconds = stop - start
        return (
            ((rows - rows0) / seconds, (tokens - tokens0) / seconds) if seconds > 0 else (0, 0)
        )

    def left_s(self, event: Progress) -> tuple[float, float, float]:
        """Seconds that what is left takes, and the ends of their 95% interval; zeros where that cannot be said."""
        (start, before), (stop, after) = self._work[0], self._work[-1]
        if not event.work_left or stop <= start or after <= before:
            rows_s, _ = self.rates()
            left = (event.total - event.done) / rows_s if rows_s else 0.0
            return max(0.0, left), 0.0, 0.0
        seconds = event.work_left * (stop - start) / (after - before)
        steps = [
            (moment, work - earlier) for (_, earlier), (moment, work) in pairwise(self._work)
        ]
        rate = steady(steps, start, stop)
        if rate is None:
            return seconds, 0.0, 0.0
        share = (rate.share**2 + (NORMAL * event.work_error / event.work_left) ** 2) ** 0.5
        return seconds, max(0.0, seconds * (1 - share)), seconds * (1 + share)


def progress_line(event: Progress, pace: Pace, gpu_use: float | None = None) -> str:
    """One line that tells how far the run is; `gpu_use` is the share of the time in which the GPUs worked."""
    rows_s, tokens_s = pace.rates()
    total = f"/{event.total:,}" if event.total else ""
    parts = [f"{event.done:,}{total} rows"]
    if rows_s > 0:
        parts += [f"{_rate(rows_s)} rows/s", f"{_rate(tokens_s)} tokens/s"]
    parts += [f"{event.failed:,} failed", f"{event.in_flight:,} in flight"]
    parts += _used(event, gpu_use)
    if event.workers:
        parts.append(f"{event.workers:,} worker{'' if event.workers == 1 else 's'}")
    if rows_s > 0 and event.total > event.done:
        parts += _ahead(event, pace)
    elif event.cost:
        parts.append(f"cost {amount(event.cost)}")
    return ", ".join(parts)


def _ahead(event: Progress, pace: Pace) -> Iterator[str]:
    """What is left, by tokens, in time and money."""
    left_s, low_s, high_s = pace.left_s(event)
    between = f" ({duration(low_s)} to {duration(high_s)})" if high_s else ""
    yield f"{duration(left_s)} left{between}"
    if event.cost:
        whole = event.cost + event.hour_price * left_s / HOUR_S + event.cost_left
        yield f"cost {amount(event.cost)} of about {amount(whole)}"


def _used(event: Progress, gpu_use: float | None) -> Iterator[str]:
    """How much of what there is, where it is known."""
    if "engine_kv_use" in event.queues:
        yield f"KV {event.queues['engine_kv_use']:.0%}"
        yield f"cached {event.queues.get('engine_hit_rate', 0.0):.0%}"
    if gpu_use is not None:
        yield f"GPU {gpu_use:.0%}"


def _gpu_use(sample: Sample) -> float | None:
    uses = [gpu.use for gpu in sample.gpus]
    return sum(uses) / len(uses) if uses else None


def summary_lines(summary: Summary) -> list[str]:
    """How the run ended, and what to do next."""
    s = summary
    head = (
        "stopped"
        if s.stopped
        else "done"
        if s.asked or not s.total
        else "done before, nothing to ask"
    )
    took = f" in {duration(s.seconds)}" if s.seconds > 0 else ""
    start = (
        f" (and {duration(s.engine_start_s)} to start the engine)" if s.engine_start_s else ""
    )
    lines = [f"{head}: {s.total:,} rows{took}{start}: {_counts(s)}"]
    if s.stopped:
        lines.append(f"  why: {_one_line(s.stopped)}")
    if s.forecast is not None and not s.stopped:
        lines.append(f"  {_forecast(s.forecast, s.seconds)}")
    if s.cost:
        lines.append(f"  cost: {amount(s.cost)} so far, at the prices of `[run]`")
    lines += [f"  {line}" for line in (*_work(s), *_verdict(s), *_retries(s), *_failures(s))]
    if s.results:
        more = f" and {len(s.results) - 1:,} more" if len(s.results) > 1 else ""
        lines.append(f"  results: {s.output.rstrip('/')}/{s.results[0]}{more}")
    lines += [f"  {line}" for line in _sink(s)]
    if s.not_done:
        lines.append(f"  resume: run the same command again; {s.not_done:,} rows are left")
    if s.failed and s.output and not s.not_done:
        lines.append(f"  again: rowmill retry {s.output} asks the failed rows once more")
    if s.output:
        lines.append(
            f"  look: rowmill status {s.output}; rowmill report {s.output} makes a page of it"
        )
    return lines


def _forecast(said: Forecast, seconds: float) -> str:
    """What was said before, and what came of it."""
    off = said.seconds / seconds - 1 if seconds else 0.0
    told = (
        f"forecast: {duration(said.seconds)} ({duration(said.low_s)} to {duration(said.high_s)}) was said,"
        f" {abs(off):.0%} {'more' if off > 0 else 'less'} than it took"
    )
    if not said.ideal_s:
        return told
    share = said.ideal_s / seconds if seconds else 0.0
    return f"{told}; {share:.0%} of the speed that no schedule can beat"


def _counts(s: Summary) -> str:
    parts = [f"{s.ok:,} ok", f"{s.failed:,} failed"]
    if s.not_done:
        parts.append(f"{s.not_done:,} not done")
    if s.copied:
        parts.append(f"{s.copied:,} copied from equal rows")
    return ", ".join(parts)


def _cut_short(s: Summary) -> str:
    share = s.truncated / max(s.ok, 1)
    if not s.output_tokens:
        return (
            f"cut: {s.truncated:,} texts ({share:.1%} of the ok rows) are longer than the model takes, `cut_from` says"
            ' how long; `validate.too_long = "chunk"` makes a vector for each part'
        )
    return (
        f"cut short: {s.truncated:,} answers ({share:.1%} of the ok rows) ended at a token limit,"
        " `finish_reason` is `length`; raise `sampling.max_tokens` if that is not meant"
    )


def _work(s: Summary) -> Iterator[str]:
    tokens = s.prompt_tokens + s.output_tokens
    if tokens:
        pace = (
            f", {_rate(s.new_tokens / s.seconds)} tokens/s"
            if s.new_tokens and s.seconds
            else ""
        )
        cached = f" ({s.cached_tokens:,} cached)" if s.cached_tokens else ""
        yield f"tokens: {s.prompt_tokens:,} in{cached}, {s.output_tokens:,} out{pace}"
    if s.truncated:
        yield _cut_short(s)
    if s.violations:
        yield (
            f"off schema: {s.violations:,} rows have answers that break their schema, `regex` or `choices`;"
            " `rowmill_violation` says where"
        )


def _verdict(s: Summary) -> Iterator[str]:
    if s.verdict is not None and s.verdict.station:
        yield f"{'fine' if s.verdict.is_well else 'slow'}: {s.verdict.line()}"


def _sink(s: Summary) -> Iterator[str]:
    if s.sink:
        # Whole, for the command that goes on stands at its end.
        yield f"vectors: {' '.join(s.sink.split())}"
    yield from (f"not there: {place}: {reason}" for place, reason in s.not_loaded)


def _retries(s: Summary) -> Iterator[str]:
    if s.retries:
        causes = ", ".join(f"{number:,} x {cause}" for cause, number in s.retries)
        yield f"asked again: {causes}"


def _failures(s: Summary) -> Iterator[str]:
    for kind, sentence, rows in s.errors[:TOP_ERRORS]:
        yield f"{rows:,} x {kind}: {_one_line(sentence)}"
    if len(s.errors) > TOP_ERRORS:
        yield f"and {len(s.errors) - TOP_ERRORS:,} more kinds of errors"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _one_line(text: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}..."


def _lines_of(event: object) -> Iterator[str]:
    if isinstance(event, Planned):
        yield from event.lines()
    if isinstance(event, Note):
        yield event.text


class Lines:
    """Plain lines: the first event, then one every `every_s` seconds, and the last one at the end."""

    def __init__(self, write: Write, *, every_s: float = LINE_EVERY_S) -> None:
        self._write, self._every_s = write, every_s
        self._pace = Pace()
        self._told_at: float | None = None
        self._untold: Progress | None = None
        self._gpu_use: float | None = None

    def __call__(self, event: object) -> None:
        """Listen to one event."""
        for line in _lines_of(event):
            self._write(line)
        if isinstance(event, Sample):
            self._gpu_use = _gpu_use(event)
        if not isinstance(event, Progress):
            return
        self._pace.add(event)
        now = time.monotonic()
        self._untold = event
        if self._told_at is None or now - self._told_at >= self._every_s:
            self._told_at = now
            self._tell()

    def close(self) -> None:
        """Tell the last state, if it was not told."""
        self._tell()

    def _tell(self) -> None:
        if self._untold is not None:
            self._write(progress_line(self._untold, self._pace, self._gpu_use))
            self._untold = None


class Bar:
    """A bar that is redrawn in place, on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._pace = Pace()
        self._gpu_use: float | None = None
        self._view = RichProgress(
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            console=Console(file=stream),
            refresh_per_second=4,
        )
        self._task = self._view.add_task("starting", total=None)
        self._view.start()

    def __call__(self, event: object) -> None:
        """Listen to one event."""
        for line in _lines_of(event):
            self._view.console.print(line, markup=False, highlight=False, soft_wrap=True)
        if isinstance(event, Sample):
            self._gpu_use = _gpu_use(event)
        if isinstance(event, Progress):
            self._pace.add(event)
            self._view.update(
                self._task,
                completed=event.done,
                total=event.total or None,
                description=progress_line(event, self._pace, self._gpu_use),
            )

    def close(self) -> None:
        """Leave the last state on the screen and give the terminal back."""
        self._view.stop()


@contextmanager
def open_progress(
    write: Write, *, stream: TextIO | None = None, every_s: float = LINE_EVERY_S
) -> Iterator[Listener]:
    """Watch a run: a bar where `stream` is a terminal, else lines through `write`.

    The bar is drawn on stderr where no `stream` is given.
    """
    stream = sys.stderr if stream is None else stream
    is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    view = Bar(stream) if is_terminal else Lines(write, every_s=every_s)
    try:
        yield view
    finally:
        view.close()
