"""Events -> metrics: names, meanings, values, for whoever takes them away.

Promises: names and units as Prometheus wants them; what counts up never goes down within a run; values that are not known
are left out, not zero.
Knows nothing of: how metrics are taken away.
Memory: the last event of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from rowmill.events import EngineReady, Planned, Progress, TaskEnded
from rowmill.telemetry import Sample

Labels = tuple[tuple[str, str], ...]
Point = tuple[Labels, float]
NONE: Labels = ()


class Family(msgspec.Struct, frozen=True):
    """One metric, with all its points."""

    name: str
    kind: Literal["counter", "gauge"]
    says: str
    points: list[Point]


class Seen:
    """What was last heard of a run. Called from its threads, read from others."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._sample: Sample | None = None
        self._engine: EngineReady | None = None
        self._planned: Planned | None = None
        self._tasks = 0

    def __call__(self, event: object) -> None:
        """Listen to one event."""
        match event:
            case Progress():
                self._progress = event
            case Sample():
                self._sample = event
            case EngineReady():
                self._engine = event
            case Planned():
                self._planned = event
            case TaskEnded():
                self._tasks += 1

    def families(self) -> Iterator[Family]:
        """All that is known now."""
        for family in self._all():
            if family.points:
                yield family

    def _all(self) -> Iterator[Family]:
        yield Family(
            "rowmill_tasks_committed",
            "counter",
            "Tasks committed in this start.",
            [(NONE, self._tasks)],
        )
        if self._progress is not None:
            yield from _rows(self._progress)
        if self._engine is not None:
            yield from _engine(self._engine)
        if self._sample is not None:
            yield from _work(self._sample)
            yield from _resources(self._sample)
            yield from _counted(self._sample)
            yield from _gpus(self._sample)


def _one(name: str, kind: Literal["counter", "gauge"], says: str, value: float) -> Family:
    return Family(name, kind, says, [(NONE, value)])


def _by(
    name: str,
    kind: Literal["counter", "gauge"],
    says: str,
    label: str,
    values: dict[str, float],
) -> Family:
    points: list[Point] = [(((label, key),), value) for key, value in values.items()]
    return Family(name, kind, says, points)


def _rows(p: Progress) -> Iterator[Family]:
    yield _one(
        "rowmill_rows_expected",
        "gauge",
        "Rows that the run will end up with, as far as known.",
        p.total,
    )
    done = {"ok": float(p.ok), "failed": float(p.failed)}
    says = "Rows with an outcome, earlier starts included, by fate."
    yield _by("rowmill_rows_done", "counter", says, "fate", done)
    yield _one("rowmill_rows_in_flight", "gauge", "Rows that the engine has.", p.in_flight)
    tokens = {"prompt": float(p.prompt_tokens), "output": float(p.output_tokens)}
    says = "Tokens of rows answered in this start; cached ones are among those of prompts."
    yield _by("rowmill_tokens", "counter", says, "kind", tokens)
    yield _one(
        "rowmill_run_seconds",
        "gauge",
        "Time since the first row, without the engine's start.",
        p.seconds,
    )


def _engine(e: EngineReady) -> Iterator[Family]:
    labels: Labels = (("name", e.name), ("about", e.about))
    yield Family(
        "rowmill_engine_info", "gauge", "What answers: 1, with its name.", [(labels, 1.0)]
    )
    yield _one("rowmill_seats", "gauge", "Rows that the engine works on at once.", e.seats)
    yield _one(
        "rowmill_engine_start_seconds", "gauge", "How long the engine took to start.", e.start_s
    )
    if e.kv_tokens:
        yield _one(
            "rowmill_kv_cache_tokens", "gauge", "Tokens that the KV cache holds.", e.kv_tokens
        )


def _work(s: Sample) -> Iterator[Family]:
    says = "Rows that wait before each stage, mean since the sample before."
    yield _by("rowmill_rows_waiting", "gauge", says, "stage", s.waiting)
    points: list[Point] = [
        ((("stage", name), ("doing", doing)), seconds)
        for name, stage in s.stages.items()
        for doing, seconds in (
            ("working", stage.worked_s),
            ("starved", stage.starved_s),
            ("blocked", stage.blocked_s),
        )
    ]
    says = "Time of each stage's thread: at work, waiting for the stage before it, waiting for room behind it."
    yield Family("rowmill_stage_seconds", "counter", says, points)
    empty = {"feeding": s.empty_s, "tail": s.tail_empty_s}
    says = "Time, times the share of seats without a row: while rows were left to give, and since none is."
    yield _by("rowmill_empty_seats_seconds", "counter", says, "when", empty)
    says = "Prompt tokens that were found in the engine's cache."
    yield _one("rowmill_cached_tokens", "counter", says, s.cached_tokens)


def _resources(s: Sample) -> Iterator[Family]:
    cpu = {name: seconds for name, seconds in s.cpu_s.items() if "/" not in name}
    yield _by("rowmill_cpu_seconds", "counter", "Processor time, by process.", "process", cpu)
    memory = {name: float(size) for name, size in s.memory_bytes.items()}
    yield _by(
        "rowmill_memory_bytes", "gauge", "Resident memory, by process.", "process", memory
    )
    disk = {"read": float(s.disk_read_bytes), "write": float(s.disk_write_bytes)}
    yield _by("rowmill_disk_bytes", "counter", "Bytes from and to disks.", "direction", disk)
    net = {
        "in": float(s.net_in_bytes),
        "out": float(s.net_out_bytes),
        "loopback": float(s.loop_bytes),
    }
    says = "Bytes through this machine's network since the run began."
    yield _by("rowmill_network_bytes", "counter", says, "direction", net)


COUNTED: dict[str, tuple[str, Literal["counter", "gauge"], str]] = {
    "running": (
        "rowmill_engine_running_rows",
        "gauge",
        "Rows that the engine's scheduler works on.",
    ),
    "waiting": (
        "rowmill_engine_waiting_rows",
        "gauge",
        "Rows that the engine has no seat for yet.",
    ),
    "kv_use": (
        "rowmill_engine_kv_cache_used_ratio",
        "gauge",
        "Share of the KV cache that is taken.",
    ),
    "hit_rate": (
        "rowmill_engine_prefix_hit_ratio",
        "gauge",
        "Share of prompt tokens found in the prefix cache, so far.",
    ),
    "preemptions": (
        "rowmill_engine_preemptions",
        "counter",
        "Rows computed again because the KV cache was full.",
    ),
    "steps": ("rowmill_engine_steps", "counter", "Steps of the engine."),
    "retries": (
        "rowmill_engine_retries",
        "counter",
        "Requests that failed in passing and were made again.",
    ),
}
"""Counter of an engine -> metric."""


def _counted(s: Sample) -> Iterator[Family]:
    for name, (metric, kind, says) in COUNTED.items():
        if name in s.engine:
            yield _one(metric, kind, says, s.engine[name])


def _gpus(s: Sample) -> Iterator[Family]:
    told = (
        ("rowmill_gpu_busy_ratio", "Share of the time in which any kernel ran.", "use", 1.0),
        (
            "rowmill_gpu_memory_busy_ratio",
            "Share of the time in which memory was read or written.",
            "memory_use",
            1.0,
        ),
        ("rowmill_gpu_memory_bytes", "Memory that is taken.", "memory_bytes", 1.0),
        ("rowmill_gpu_power_watts", "Power drawn.", "power_w", 1.0),
        ("rowmill_gpu_clock_hertz", "Clock of the multiprocessors.", "clock_mhz", 1e6),
        ("rowmill_gpu_temperature_celsius", "Temperature.", "temperature_c", 1.0),
        (
            "rowmill_gpu_tensor_busy_ratio",
            "Share of the time in which tensor cores worked.",
            "tensor_use",
            1.0,
        ),
        (
            "rowmill_gpu_bandwidth_used_ratio",
            "Share of the memory's bandwidth that was used.",
            "bandwidth_use",
            1.0,
        ),
    )
    for metric, says, field, factor in told:
        values = {str(g.index): getattr(g, field) * factor for g in s.gpus}
        known = {index: value for index, value in values.items() if value >= 0}
        yield _by(metric, "gauge", says, "gpu", known)
