"""A job, an engine, what is known of the rows -> settings worth a start of the engine, each with what it is expected to bring.

Promises: nothing that changes answers is among them; on GPUs whose rates are known each comes from playing the engine
through, elsewhere from a rule that is named. The first of a chain is tried first, the next only where that gained.
Knows nothing of: what was measured.
Source: docs and articles on vLLM: 8,192 tokens a step, doubled until memory is at 90% or the curve bends; between bad and good
settings of these lie 5 to 20%. Seats: the KV cache over what a row holds on the average of its life.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from pydantic import ValidationError

from rowmill.config import EngineConfig, Job
from rowmill.engines.vllm_place import step_budget
from rowmill.errors import BadJob
from rowmill.executors.opening import understand
from rowmill.forecast.gathered import Gathered
from rowmill.prospect import Place, places_of, prospects, shape_of_model
from rowmill.rows import Limits
from rowmill.size import Gpu, ModelShape
from rowmill.size.pool import FIXED_BYTES, activation_bytes

FIRST_STEP_TOKENS, MOST_STEP_TOKENS = 8192, 65_536
MEMORY_SHARE = 0.9
RULE_GAIN = 0.1
"""What a rule expects: the middle of what lies between bad and good settings."""
LEAST_GAIN = 0.01
ROUND_SEATS = 64
MOST_SEATS = 4096


class Move(msgspec.Struct, frozen=True):
    """Settings to try in one start."""

    chain: str
    changes: dict[str, Any]
    gain: float
    """So much faster, it is expected: 0.1 is a tenth."""
    why: str


def moves_of(job: Job, limits: Limits, gathered: Gathered) -> list[list[Move]]:
    """Chains of moves away from the job's own settings."""
    places = [one for one in places_of(job) if one.is_here]
    shape = shape_of_model(job.engine)
    if job.engine.name == "vllm" and places and shape is not None and gathered.totals.rows:
        return list(_played(job, limits, gathered, places[0], shape))
    rules = {
        "vllm": _vllm,
        "llamacpp": _llamacpp,
        "transformers": _transformers,
        "onnx": _onnx,
        "http": _http,
    }
    rule = rules.get(job.engine.name)
    return [chain for chain in rule(job.engine, limits) if chain] if rule else []


def levels_of(engine: EngineConfig, limits: Limits) -> list[int]:
    """Numbers of rows in flight that one start can try: the seats, and half, a quarter, an eighth of them."""
    if limits.pads:
        return [limits.seats]  # it fills steps by tokens: fewer rows only make them smaller
    least = max(1, limits.replicas)
    found = [limits.seats >> i for i in range(4 if engine.name == "http" else 3)]
    return [level for level in found if level >= least] or [limits.seats]


# -- GPUs whose rates are known: the engine is played through ---------------------------------


def _played(
    job: Job, limits: Limits, gathered: Gathered, here: Place, shape: ModelShape
) -> Iterator[list[Move]]:
    def seconds(changes: dict[str, Any]) -> float:
        changed = with_engine(job, changes)
        found = next(prospects(changed, gathered, limits, is_brief=True), None)
        return found.seconds if found is not None and found.fit.parallel else float("inf")

    now = seconds({})
    ways = {
        "max_num_batched_tokens": list(step_tokens_of(job.engine, here.gpu, shape, gathered)),
        "seats": _seats(limits, gathered),
        "replicas": _replicas(job.engine, here, limits),
    }
    best: dict[str, tuple[float, Any]] = {}
    for name, values in ways.items():
        found = [(seconds({name: value}), value) for value in values]
        if found:
            best[name] = min(found)
    gainful = {
        name: value for name, (took, value) in best.items() if now / took - 1 > LEAST_GAIN
    }
    if len(gainful) > 1:
        took = seconds(gainful)
        told = ", ".join(f"`{name} = {value}`" for name, value in gainful.items())
        yield [
            Move("all", gainful, now / took - 1, f"{told} together, as the engine is played")
        ]
    for name, value in gainful.items():
        gain = now / best[name][0] - 1
        why = f"the best of {', '.join(map(str, ways[name]))}, as the engine is played on this GPU"
        yield [Move(name, {name: value}, gain, why)]


def step_tokens_of(
    engine: EngineConfig, gpu: Gpu, shape: ModelShape, gathered: Gathered
) -> Iterator[int]:
    """Token budgets, doubled from 8,192 as long as weights, activations and the rows in seats take 90% of the memory."""
    budget = step_budget(engine.options, gpu, engine.seats)
    rows = max(1, gathered.totals.rows)
    row_tokens = (gathered.totals.prompt_tokens + gathered.totals.answer_tokens / 2) / rows
    tokens = FIRST_STEP_TOKENS
    while tokens <= MOST_STEP_TOKENS:
        wider = msgspec.structs.replace(budget, step_tokens=tokens)
        held = min(budget.seats, rows) * row_tokens * shape.kv_bytes(kv_dtype=budget.kv_dtype)
        taken = shape.weight_bytes(dtype=budget.dtype, quantization=budget.quantization)
        taken = taken // budget.tensor_parallel + activation_bytes(shape, wider) + FIXED_BYTES
        if taken + held / budget.tensor_parallel > MEMORY_SHARE * gpu.memory_bytes:
            return
        if tokens != budget.step_tokens:
            yield tokens
        tokens *= 2


def _seats(limits: Limits, gathered: Gathered) -> list[int]:
    """What the KV cache holds of rows in the middle of their lives, a quarter less and half more."""
    if not limits.kv_tokens:
        return []
    rows = max(1, gathered.totals.rows)
    held = (gathered.totals.prompt_tokens + gathered.totals.answer_tokens / 2) / rows
    fits = limits.kv_tokens / limits.replicas / max(held, 1.0)
    own = limits.seats // limits.replicas
    found = {
        max(ROUND_SEATS, min(MOST_SEATS, int(fits * share) // ROUND_SEATS * ROUND_SEATS))
        for share in (0.75, 1.0, 1.5)
    }
    return sorted((found | {512, 2048}) - {own})


def _replicas(engine: EngineConfig, here: Place, limits: Limits) -> list[int]:
    if engine.options.get("replicas") not in (None, "auto"):
        return []
    if int(engine.options.get("tensor_parallel_size") or 1) > 1:
        return []
    a_gpu = max(1, limits.replicas // here.number)
    return sorted({here.number * n for n in (1, 2, a_gpu * 2)} - {limits.replicas})


# -- everything else: rules -------------------------------------------------------------------


def _chain(name: str, values: list[Any], why: str) -> list[Move]:
    return [Move(name, {name: value}, RULE_GAIN, why) for value in values]


def _vllm(engine: EngineConfig, limits: Limits) -> Iterator[list[Move]]:
    own = engine.options.get("max_num_batched_tokens")
    up = [tokens for tokens in (8192, 16_384) if tokens != own and tokens > (own or 0)]
    yield _chain("max_num_batched_tokens", up, "doubled from 8,192 until the curve bends")
    if engine.seats is None or limits.seats <= engine.seats:
        yield _chain("seats", [2 * limits.seats // limits.replicas], "twice the seats")


def _llamacpp(engine: EngineConfig, limits: Limits) -> Iterator[list[Move]]:
    if engine.options.get("n_ctx") is None:
        more = [limits.seats * 2, limits.seats * 4]
        yield _chain("seats", more, "more rows a step read the weights once for all of them")
    cores = len(os.sched_getaffinity(0))
    if engine.options.get("threads") is None and cores > 1:
        yield _chain(
            "threads", [max(1, cores // 2)], "threads of one core get in each other's way"
        )
    if engine.options.get("n_batch") is None:
        chain = [{"n_batch": 4096, "n_ubatch": 1024}]
        yield [Move("n_batch", one, RULE_GAIN, "more of long prompts at once") for one in chain]


def _transformers(engine: EngineConfig, limits: Limits) -> Iterator[list[Move]]:
    own, prompts = limits.kv_tokens or 32_768, limits.step_tokens or 2048
    yield [
        Move(
            "batch_tokens",
            {"batch_tokens": own * times, "seats": limits.seats * times},
            RULE_GAIN,
            "more rows side by side",
        )
        for times in (2, 4)
    ]
    yield _chain("prompt_tokens", [prompts * 2, prompts * 4], "more of prompts at once")


def _onnx(engine: EngineConfig, limits: Limits) -> Iterator[list[Move]]:
    own = limits.step_tokens
    yield _chain("step_tokens", [own * 2, own * 4], "larger steps")
    yield _chain(
        "step_tokens", [max(256, own // 2)], "smaller steps stay in the processor's cache"
    )


def _http(engine: EngineConfig, limits: Limits) -> Iterator[list[Move]]:
    more = [limits.seats * 2, limits.seats * 4]
    yield _chain("seats", more, "an endpoint may take more requests at once")


def with_engine(job: Job, changes: dict[str, Any]) -> Job:
    """The job with other settings of its engine."""
    if not changes:
        return job
    tree = {**job.engine.model_dump(), **changes}
    return job.model_copy(update={"engine": EngineConfig.model_validate(tree)})


def check_also(job: Job, also: Iterable[tuple[str, Any]]) -> None:
    """Refuse settings to be tried that no engine would be started with, before there are answers to lose.

    Raises:
        ConfigError: tells what is wrong with the first.
    """
    for name, value in also:
        try:
            changed = with_engine(job, {name: value})
        except ValidationError as error:
            told = error.errors()[0]["msg"]
            mistake = f"`engine.{name}`: {told[:1].lower()}{told[1:]}"
            raise BadJob(where="`--also`", mistakes=[mistake]) from error
        understand(changed)
