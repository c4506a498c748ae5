"""Samples -> signs: the dozen numbers that the rules look at.

Promises: shares are of the time in which there was something to do: from the first row to the last outcome, without the
engine's start; depths and gauges are means over the time in which rows were left to give.
Knows nothing of: rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rowmill.events import Began, EngineReady
from rowmill.telemetry import GpuUse, Sample, Stage

NO_STAGE = Stage()
Timed = tuple[float, Sample]


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules look at. `*_share`: of the time, 0 to 1."""

    engine: EngineReady | None
    began: Began | None
    seconds: float
    starved_share: float
    """Seats without a row though rows were left, for want of rows that were ready."""
    pooled_share: float
    """Seats without a row because the KV cache would not hold more."""
    tail_share: float
    """Seats without a row because none was left."""
    read_share: float
    """Of the time in which rows were made ready: the planner waited for reading."""
    measure_share: float
    """Of what the planner worked: tokenising."""
    write_share: float
    """Outcomes were being written."""
    write_wait_share: float
    """The same, less the processor time of the thread that does it: waiting for the disk or the store."""
    unwritten_share: float
    """Of the rows that the engine has by our count: those it has answered."""
    seats: int
    found_seats: float
    """Rows that an endpoint was found to take at once; 0: as many as the job says, or no endpoint."""
    in_flight: float
    running: float
    """Rows that the engine's scheduler works on; -1: it does not say."""
    waiting: float
    kv_use: float
    preempted: float
    """Preemptions, as a share of the rows answered."""
    step_tokens: float
    """New tokens in a step of one replica; 0: not known."""
    retried: float
    """Requests made again, as a share of the rows answered."""
    answer_tokens: float
    """Of a row's answer; 0: vectors, scores and labels, of which there are none."""
    rows_s: float
    answer_s: float
    """Seconds that the engine works on a row, by Little's law."""
    at_once: float
    """Rows that it works on at once."""
    engine_cores: float
    """Processors that engines kept busy."""
    front_cores: float
    """Of those, the adapters' own processes."""
    own_cores: float
    """That our own threads kept busy: one is all that an interpreter has."""
    tokenizer_cores: float
    """Likewise, threads of the tokenizers' library in our process."""
    gpu: GpuUse | None
    """Mean over GPUs and time; None without one."""

    def numbers(self) -> dict[str, float]:
        """Those that are numbers, by name."""
        found = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("engine", "began", "gpu")
        }
        if self.gpu is not None:
            for name in ("use", "memory_use", "tensor_use", "bandwidth_use"):
                found[f"gpu_{name}"] = getattr(self.gpu, name)
        return {name: round(float(value), 4) for name, value in found.items()}


def signs_of(
    samples: Sequence[Timed], engine: EngineReady | None, began: Began | None
) -> Signs:
    """The signs of one worker; `samples` are not none."""
    last = samples[-1][1]
    lead_s = max(0.0, last.seconds - last.active_s)
    seconds = max(last.seconds, last.active_s, 1e-9)
    stage = {name: last.stages.get(name, NO_STAGE) for name in ("read", "measure", "plan")}
    feed, write = last.stages.get("feed", NO_STAGE), last.stages.get("write", NO_STAGE)
    unready_s = min(last.empty_s, feed.starved_s)
    ready_s = stage["measure"].worked_s + stage["plan"].worked_s
    measured_s = stage["measure"].starved_s + ready_s
    steady = _steady(samples)
    own = {name: s for name, s in last.cpu_s.items() if name.startswith("rowmill/")}
    front = last.cpu_s.get("engine", 0.0)
    answered = max(last.rows_answered, 1)
    in_flight = _mean(steady, lambda s: s.in_flight)
    active_s = max(last.active_s, 1e-9)
    running = _mean(steady, lambda s: s.engine.get("running", -1.0))
    at_once = running if running >= 0 else min(in_flight, last.seats)
    return Signs(
        engine=engine,
        began=began,
        seconds=seconds,
        starved_share=(lead_s + unready_s) / seconds,
        pooled_share=max(0.0, last.empty_s - unready_s) / seconds,
        tail_share=last.tail_empty_s / seconds,
        read_share=stage["measure"].starved_s / max(measured_s, 1e-9),
        measure_share=stage["measure"].worked_s / max(ready_s, 1e-9),
        write_share=write.worked_s / active_s,
        write_wait_share=max(0.0, write.worked_s - own.get("rowmill/receive", 0.0)) / active_s,
        unwritten_share=last.written_row_s / max(last.row_s, 1e-9),
        seats=last.seats,
        found_seats=_mean(steady, lambda s: s.engine.get("seats", 0.0)),
        in_flight=in_flight,
        running=running,
        waiting=_mean(steady, lambda s: s.engine.get("waiting", 0.0)),
        kv_use=_mean(steady, lambda s: s.engine.get("kv_use", 0.0)),
        preempted=last.engine.get("preemptions", 0.0) / answered,
        step_tokens=_step_tokens(steady, engine),
        retried=last.engine.get("retries", 0.0) / answered,
        answer_tokens=last.output_tokens / answered,
        rows_s=last.rows_answered / active_s,
        answer_s=at_once * active_s / answered,
        at_once=at_once,
        engine_cores=_rate(steady, engines_of),
        front_cores=front / active_s,
        own_cores=sum(own.values()) / seconds,
        tokenizer_cores=max(0.0, last.cpu_s.get("rowmill", 0.0) - sum(own.values())) / seconds,
        gpu=_gpu(steady),
    )


def engines_of(sample: Sample) -> float:
    """Processor time of all engines' processes."""
    return sum(s for name, s in sample.cpu_s.items() if name.split(" ")[0] == "engine")


def _steady(samples: Sequence[Timed]) -> Sequence[Timed]:
    """Those taken while rows were left to give, the last one before included; all, where there are too few."""
    found = [one for one in samples if one[1].rows_fed and not one[1].tail_s]
    return found if len(found) >= 2 else samples


def _mean(samples: Sequence[Timed], of: Callable[[Sample], float]) -> float:
    """Over time: each sample stands for what lies between it and the one before."""
    total = weights = 0.0
    before = samples[0][0] - 1.0
    for at, sample in samples:
        weight = max(at - before, 1e-3)
        total, weights, before = total + weight * of(sample), weights + weight, at
    return total / weights


def _rate(samples: Sequence[Timed], of: Callable[[Sample], float]) -> float:
    """A second, of what counts up."""
    (began, first), (ended, last) = samples[0], samples[-1]
    if len(samples) < 2:
        return of(last) / max(last.active_s, 1e-9)
    return (of(last) - of(first)) / max(ended - began, 1e-9)


def _step_tokens(samples: Sequence[Timed], engine: EngineReady | None) -> float:
    """Tokens that were computed in a step; replicas step apart from each other."""
    if engine is None or not engine.step_tokens:
        return 0.0
    steps = _rate(samples, lambda s: s.engine.get("steps", 0.0))
    tokens = _rate(samples, lambda s: s.prompt_tokens - s.cached_tokens + s.output_tokens)
    return tokens / steps if steps > 0 else 0.0


def _gpu(samples: Sequence[Timed]) -> GpuUse | None:
    counted = [(at, s) for at, s in samples if s.gpus]
    if not counted:
        return None

    def mean_of(name: str) -> float:
        return _mean(counted, lambda s: sum(getattr(g, name) for g in s.gpus) / len(s.gpus))

    names = [name for name in GpuUse.__struct_fields__ if name not in ("index", "memory_bytes")]
    means = {name: mean_of(name) for name in names}
    return msgspec.convert({"index": 0, **means}, GpuUse)
