"""Metrics and tasks -> an OpenTelemetry collector, over HTTP.

Promises: metrics every `EVERY_S`, and once more at the end; a span a task, with its rows, tokens and failures; a collector that
is away ends no run.
Knows nothing of: what metrics mean.
Memory: spans that wait to be sent, as the SDK bounds them. Threads: two of the SDK's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rowmill.errors import MissingExtra
from rowmill.events import Listener, TaskBegan, TaskEnded
from rowmill.metrics.families import Seen

EVERY_S = 15.0
PATIENCE_S = 5.0


@contextlib.contextmanager
def pushed(seen: Seen, root: str) -> Iterator[Listener]:
    """Push to the collector for as long as the context lasts; the listener makes the spans.

    Raises:
        MissingExtra: the library is missing.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra(what="`opentelemetry-sdk`", extra="opentelemetry") from error
    about = Resource.create({"service.name": "rowmill"})
    exporter = OTLPMetricExporter(endpoint=f"{root}/v1/metrics", timeout=PATIENCE_S)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=EVERY_S * 1000)
    meters = MeterProvider([reader], resource=about)
    tracers = TracerProvider(resource=about)
    spans = OTLPSpanExporter(endpoint=f"{root}/v1/traces", timeout=PATIENCE_S)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    observed = _Observed(meters.get_meter("rowmill"), seen)
    tasks = _Tasks(tracers.get_tracer("rowmill"))

    def hear(event: object) -> None:
        tasks.hear(event)
        observed.look()

    try:
        yield hear
    finally:
        observed.look()
        meters.shutdown(timeout_millis=PATIENCE_S * 1000)
        tracers.shutdown()


class _Observed:
    """An instrument for each metric, made when it is first seen."""

    def __init__(self, meter: Any, seen: Seen) -> None:
        self._meter, self._seen = meter, seen
        self._made: set[str] = set()

    def look(self) -> None:
        for family in self._seen.families():
            if family.name not in self._made:
                self._made.add(family.name)
                make = (
                    self._meter.create_observable_counter
                    if family.kind == "counter"
                    else self._meter.create_observable_gauge
                )
                make(family.name, [self._reader(family.name)], description=family.says)

    def _reader(self, name: str) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def read(_options: Any) -> Iterable[Any]:
            for family in self._seen.families():
                if family.name == name:
                    for labels, value in family.points:
                        yield Observation(value, dict(labels))

        return read


class _Tasks:
    """A span for each task that ends; one that another worker takes over has none here."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._began: dict[int, int] = {}

    def hear(self, event: object) -> None:
        match event:
            case TaskBegan():
                self._began[event.task] = _now_ns()
            case TaskEnded():
                span = self._tracer.start_span(
                    "task", start_time=self._began.pop(event.task, _now_ns())
                )
                for name in ("task", "rows", "ok", "failed", "prompt_tokens", "output_tokens"):
                    span.set_attribute(f"rowmill.{name}", getattr(event, name))
                span.end(_now_ns())


def _now_ns() -> int:
    return time.time_ns()
