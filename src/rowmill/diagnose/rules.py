"""Signs -> verdict: the first rule that holds.

Promises: each rule is one function, in the order of docs/verdicts.md; a threshold stands here once, with its reason.
Knows nothing of: samples.
Source: vLLM's scheduler lets a waiting row in unless seats, step tokens or KV blocks are used up: with rows waiting, the one
of the three that is used up is what they wait for. The knee of a GPU is its operations a second over its bytes a second.
"""

from __future__ import annotations

from collections.abc import Callable

from rowmill.diagnose import words
from rowmill.diagnose.signs import Signs
from rowmill.events import Verdict

STATIONS = (
    *("reading", "tokenising", "planning", "engine CPU", "GPU compute", "GPU bandwidth"),
    *("CPU compute", "KV full", "seats", "token budget", "endpoint", "engine", "writing"),
    *("tail", "rowmill"),
)
"""What a verdict can name. `engine`: one that tells nothing of itself; `rowmill`: this process, that all rows pass."""

LEAST_S = 3.0
"""A shorter run is all start and end."""
MANY = 0.25
"""A quarter of the time lost is worth a word; less is lost in every run's beginning and end."""
WRITES = 0.7
"""The one thread that takes outcomes is this busy: what comes waits for it."""
NEVER_FREE = 0.95
"""And then rows that wait for it are its doing, whatever else was slow."""
IDLE = 0.5
FULL_SEATS = 0.8
"""In the mean over steps: rows that end together leave seats empty until the next step."""
FULL_KV = 0.85
"""vLLM keeps some blocks free for rows that grow."""
ROOM_KV = 0.5
"""Twice as many rows would fit."""
FULL_STEP = 0.7
"""Of the most tokens of a step, in the mean: steps that only decode are among them."""
SMALL_STEP = 2048
"""Steps of fewer tokens spend a good part of their time on what each step costs, whatever is in it."""
FEW_ROWS = 64
"""Under so many tokens a step, weights are read for too few rows: half the knee of the GPUs of size/gpus.py (96 to 225
tokens in 16 bits)."""
REFUSES = 0.01
"""Of the rows, that are asked again: an endpoint that is asked for more than it takes says so."""
PREEMPTED = 0.05
BUSY_CORE = 0.85
BUSY_GPU = 0.75
BUSY_BANDWIDTH = 0.5
BUSY_TENSOR = 0.3
"""Good kernels reach 0.6 to 0.7 of either counter."""
BUSY_CORES = 0.6
"""Of this machine's, where the engine computes on them."""
COMPUTES_HERE = frozenset({"llamacpp", "onnx", "transformers", "vllm"})
"""Engines that compute on this machine's processors where there is no GPU."""


def judge(signs: Signs) -> Verdict:
    """The first rule that holds; one always does."""
    if signs.seconds < LEAST_S:
        return Verdict(station="", says=words.too_short(signs, LEAST_S))
    found = next(verdict for rule in RULES if (verdict := rule(signs)) is not None)
    return Verdict(
        station=found.station,
        says=found.says,
        remedy=found.remedy,
        is_well=found.is_well,
        signs=signs.numbers(),
    )


def _starved(s: Signs) -> Verdict | None:
    """Seats stood empty because no row was ready: the station before the engine that worked all the time."""
    if s.starved_share < MANY or s.starved_share < s.tail_share:
        return None
    # A disk that is slow to write to holds back who reads as well, whose tasks are noted on it.
    if s.write_share >= NEVER_FREE and s.unwritten_share >= MANY:
        return None
    if s.read_share >= 0.5:
        return words.reading(s)
    return words.tokenising(s) if s.measure_share >= 0.5 else words.planning(s)


def _tail(s: Signs) -> Verdict | None:
    """Seats stood empty because no row was left."""
    return words.tail(s) if s.tail_share >= MANY else None


def _writing(s: Signs) -> Verdict | None:
    """The thread that takes outcomes was never free: the engine waits to get rid of them."""
    is_behind = s.unwritten_share >= MANY or _idles(s)
    return words.writing(s) if s.write_share >= WRITES and is_behind else None


def _idles(s: Signs) -> bool:
    """Whether the engine has little to do, whatever we count as in flight: answers may wait in its channel."""
    if s.running >= 0:
        return s.running < IDLE * s.seats
    replicas = s.engine.replicas if s.engine is not None else 1
    return s.engine_cores < IDLE * replicas and (s.gpu is None or s.gpu.use < IDLE)


def _kv(s: Signs) -> Verdict | None:
    """Rows wait, seats are free, blocks are not; or rows give their blocks back and are computed again."""
    waits = s.waiting >= 1 and 0 <= s.running < FULL_SEATS * s.seats
    # Held back by our own count of what rows will hold, which is to blame where the cache fills.
    is_held = s.pooled_share >= MANY and s.kv_use >= ROOM_KV
    if s.preempted >= PREEMPTED or is_held or (waits and s.kv_use >= FULL_KV):
        return words.kv_full(s)
    return None


def _budget(s: Signs) -> Verdict | None:
    """Steps are full, and small, and rows wait."""
    most = s.engine.step_tokens if s.engine is not None else 0
    if s.waiting < 1 or not most or most >= SMALL_STEP or s.step_tokens < FULL_STEP * most:
        return None
    return words.token_budget(s)


def _seats(s: Signs) -> Verdict | None:
    """Seats are taken, rows wait, and a step has few tokens though the KV cache has room for more."""
    if s.waiting < 1 or s.running < FULL_SEATS * s.seats or not s.step_tokens:
        return None
    if s.step_tokens >= FEW_ROWS or s.kv_use >= ROOM_KV:
        return None
    return words.seats(s)


def _own(s: Signs) -> Verdict | None:
    """Our own interpreter is busy, and nothing behind it is."""
    is_gpu_busy = s.gpu is not None and s.gpu.use >= BUSY_GPU
    if is_gpu_busy or s.own_cores < BUSY_CORE or s.front_cores >= BUSY_CORE:
        return None
    return words.own(s)


def _endpoint(s: Signs) -> Verdict | None:
    """Answers come from elsewhere, and our side is not busy."""
    if s.engine is None or s.engine.name != "http" or s.front_cores >= BUSY_CORE:
        return None
    # Only where more is asked of it does an endpoint show whether it has room for more.
    is_held = not s.found_seats and s.in_flight >= FULL_SEATS * s.seats and s.retried < REFUSES
    return words.endpoint(s, is_held=is_held)


def _gpu(s: Signs) -> Verdict | None:
    """What of the GPU is used up; none of it is, and the engine's processes are what it waits for."""
    gpu = s.gpu
    if gpu is None or (s.engine is not None and s.engine.name == "http"):
        return None
    is_counted = gpu.tensor_use >= 0 and gpu.bandwidth_use >= 0
    if gpu.use < BUSY_GPU or (
        is_counted and gpu.tensor_use < BUSY_TENSOR and gpu.bandwidth_use < BUSY_BANDWIDTH
    ):
        return words.engine_cpu(s)
    if is_counted:
        by_memory = gpu.bandwidth_use / BUSY_BANDWIDTH > gpu.tensor_use / BUSY_TENSOR
    else:
        by_memory = gpu.memory_use >= BUSY_BANDWIDTH
    return words.gpu_bandwidth(s) if by_memory else words.gpu_compute(s)


def _cpu(s: Signs) -> Verdict | None:
    """No GPU: the engine computes on this machine's processors, or its one process is all there is."""
    cores = s.began.cores if s.began is not None else 1.0
    computes = s.engine is not None and s.engine.name in COMPUTES_HERE
    if computes and s.engine_cores >= BUSY_CORES * cores:
        return words.cpu_compute(s, cores)
    replicas = s.engine.replicas if s.engine is not None else 1
    return words.engine_cpu(s) if s.front_cores >= BUSY_CORE * replicas else None


def _engine(s: Signs) -> Verdict | None:
    """What is left: rows wait for an engine that says nothing of itself."""
    return words.engine(s)


RULES: tuple[Callable[[Signs], Verdict | None], ...] = (
    *(_starved, _tail, _writing, _kv, _budget, _seats, _own),
    *(_endpoint, _gpu, _cpu, _engine),
)
