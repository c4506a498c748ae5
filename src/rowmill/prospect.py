"""A job and its rows -> what it will take on the GPUs here, on those that are named, or on one of each kind.

Promises: no GPU and no engine is needed; where the model's shape is not known, or the engine has none, nothing is said.
Knows nothing of: how rows are read, how a forecast is shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rowmill.config import EngineConfig, Job
from rowmill.engines.vllm_place import step_budget
from rowmill.errors import UnknownName
from rowmill.forecast.blocks import BLOCK
from rowmill.forecast.foretold import Foretold, Setting, foretell
from rowmill.forecast.gathered import Gathered
from rowmill.plan import Lever
from rowmill.rows import Limits
from rowmill.shown.spans import duration
from rowmill.size import Budget, Gpu, ModelShape, read_shape
from rowmill.size.fit import Fit, fit
from rowmill.size.gpus import TABLE, gpu_named, gpus_seen, kind_of
from rowmill.size.pool import pool_tokens, token_bytes
from rowmill.size.prices import read_prices
from rowmill.size.shape import shape_of_gguf
from rowmill.tokens.gguf_file import read_metadata

ENGINES = ("vllm", "sglang", "transformers")
"""Engines whose steps the forecast plays; others are forecast where a GPU is named for them."""
FIRST_TOKENS = 4096
"""Taken for the longest row before any is read."""
CORES_A_GPU = 16
PINNED = (
    *("seats", "max_num_batched_tokens", "gpu_memory_utilization", "replicas"),
    *("kv_cache_memory_bytes", "num_gpu_blocks_override"),
)
"""Settings that are looked at with and without."""
OTHER_NAMES = {
    "tp_size": "tensor_parallel_size",
    "chunked_prefill_size": "max_num_batched_tokens",
    "mem_fraction_static": "gpu_memory_utilization",
}
"""What SGLang calls a setting that the forecast knows by vLLM's name."""
WORTH_SAYING = 0.05
OPEN_ANSWERS = 4
"""A row that may get so many times as long as is expected has an answer without a limit worth the name."""


class Place(msgspec.Struct, frozen=True):
    """GPUs of one kind that a job may run on."""

    gpu: Gpu
    number: int
    is_here: bool = False


def places_of(job: Job) -> list[Place]:
    """Where to forecast: one place where it is named or found, else one of each kind; none for engines without GPUs.

    Raises:
        UnknownName: `plan.gpu` is not in the table.
    """
    if job.plan.gpu:
        return [named_place(job.plan.gpu)]
    if job.engine.name not in ENGINES:
        return []
    found = gpus_here()
    if found:
        return [Place(found[0], len(found), is_here=True)]
    return [Place(gpu, 1) for gpu in filter(None, map(gpu_named, TABLE))]


def gpus_here() -> tuple[Gpu, ...]:
    """The GPUs of this process."""
    return gpus_seen(os.environ.get("CUDA_VISIBLE_DEVICES"))


def named_place(text: str) -> Place:
    """`H200`, `2xL4`, `4 x A100-80`.

    Raises:
        UnknownName: there is no such GPU in the table.
    """
    match = re.fullmatch(r"\s*(?:(\d+)\s*x\s*)?(.+?)\s*", text, re.IGNORECASE)
    gpu = gpu_named(match[2]) if match else None
    if match is None or gpu is None or match[1] == "0":
        raise UnknownName(what="GPU", name=text, known=list(TABLE))
    return Place(gpu, int(match[1] or 1))


def limits_at(job: Job, limits: Limits, place: Place) -> Limits:
    """What engines there would say of themselves: the plan's levers are looked at with it."""
    shape = shape_of_model(job.engine)
    if shape is None:
        return limits
    fitted = _fit(job, shape, place, longest=job.engine.max_model_len or FIRST_TOKENS)
    number = fitted.replicas * max(1, place.number // max(1, fitted.parallel))
    return msgspec.structs.replace(
        limits,
        kv_tokens=fitted.pool_tokens * number,
        seats=fitted.seats * number,
        replicas=number,
    )


def prospects(
    job: Job,
    gathered: Gathered,
    limits: Limits,
    *,
    rows: int | None = None,
    is_brief: bool = False,
) -> Iterator[Foretold]:
    """A forecast for each place; a model that does not fit has no seconds there.

    Args:
        rows: there are in all; None: those that were gathered.
        is_brief: without the order of the input and the range that unknown lengths leave.
    """
    if shape_of_model(job.engine) is None or not gathered.totals.rows:
        return
    places = places_of(job)
    for place in places:
        found = foretold_at(
            job, gathered, limits, place, rows=rows, is_brief=is_brief or len(places) > 1
        )
        if found is not None:
            yield found


def foretold_at(
    job: Job,
    gathered: Gathered,
    limits: Limits,
    place: Place,
    *,
    rows: int | None = None,
    is_brief: bool = True,
) -> Foretold | None:
    """The forecast for one place; None where the model's shape is not known."""
    shape = shape_of_model(job.engine)
    if shape is None or not gathered.totals.rows:
        return None
    fitted = _fit(job, shape, place, longest=gathered.high.longest_row)
    setting = _setting(job, shape, place, fitted, limits)
    return foretell(gathered, setting, rows=rows, is_brief=is_brief)


def priced_at(job: Job, gpu: str) -> float:
    """Price of one such GPU for an hour: the job's, else that of the table; 0 where neither says.

    Raises:
        ConfigError: the job's table cannot be read.
    """
    if job.run.gpu_hour_price is not None:
        return job.run.gpu_hour_price
    found = read_prices(job.run.prices).gpu.get(gpu)
    return found.hour if found is not None else 0.0


def advice(job: Job, gathered: Gathered, limits: Limits) -> Iterator[str]:
    """What settings of the job cost, each against what is usual where it is left out; nothing where it costs nothing."""
    shape, places = shape_of_model(job.engine), places_of(job)
    if shape is None or len(places) != 1 or not gathered.totals.rows:
        return
    place, longest = places[0], gathered.high.longest_row
    given = {name: job.engine.options.get(name) for name in PINNED}
    given["seats"] = job.engine.seats
    pinned = {name: value for name, value in given.items() if value is not None}
    now = _seconds(job, gathered, shape, place, limits) if pinned else 0.0
    for name, value in pinned.items():
        engine = {k: v for k, v in job.engine.model_dump().items() if k != name}
        without = job.model_copy(update={"engine": EngineConfig.model_validate(engine)})
        usual = _seconds(without, gathered, shape, place, limits)
        if now > (1 + WORTH_SAYING) * usual > 0:
            yield (
                f"`engine.{name} = {value}` makes it {duration(now)}; left out, it is {duration(usual)}"
            )
    most = job.engine.max_model_len
    if most and most >= 2 * longest:
        yield f"`engine.max_model_len = {most}`: no row takes more than {longest:,} tokens, prompt and answer"
    if (
        job.sampling.max_tokens is None
        and longest >= OPEN_ANSWERS * gathered.totals.longest_row
    ):
        yield (
            f"`sampling.max_tokens` is not given, so a row may take {longest:,} tokens, prompt and answer, and the forecast is"
            " wide: give the most that you would read"
        )


def order_advice(found: Foretold, levers: Mapping[str, Lever]) -> Iterator[str]:
    """What the plan left alone because it seemed to fit into the cache, and by the tokens does not."""
    prefixes = levers.get("prefixes")
    missed = found.bounds.hit_rate - found.hit_rate
    if prefixes is None or not prefixes.fits:
        return
    if missed >= WORTH_SAYING and found.fit.parallel:
        yield (
            f'`plan.order = "prefix"`: by their tokens, shared beginnings do not fit into the KV cache: {found.hit_rate:.0%}'
            f" of prompt tokens are found in it, {found.bounds.hit_rate:.0%} could be"
        )


def _seconds(
    job: Job, gathered: Gathered, shape: ModelShape, place: Place, limits: Limits
) -> float:
    fitted = _fit(job, shape, place, longest=gathered.high.longest_row)
    if not fitted.parallel:
        return 0.0
    setting = _setting(job, shape, place, fitted, limits)
    return foretell(gathered, setting, is_brief=True).seconds


def _setting(job: Job, shape: ModelShape, place: Place, fitted: Fit, limits: Limits) -> Setting:
    return Setting(
        shape=shape,
        gpu=place.gpu,
        fit=fitted,
        budget=step_budget(_options(job.engine), place.gpu, job.engine.seats),
        gpus=place.number,
        cores=_cores(place),
        shares_prefixes=limits.shares_prefixes,
        gpu_hour=priced_at(job, kind_of(place.gpu.name, place.gpu.memory_bytes)),
    )


def shape_of_model(engine: EngineConfig) -> ModelShape | None:
    """The shape of the job's model, where a folder or a GGUF file here tells it."""
    path = Path(engine.model).expanduser() if engine.model else None
    if path is None or not path.exists():
        return None
    if path.suffix == ".gguf":
        return shape_of_gguf(read_metadata(path), path.stat().st_size)
    return read_shape(path) if path.is_dir() else None


def _fit(job: Job, shape: ModelShape, place: Place, *, longest: int) -> Fit:
    options = _options(job.engine)
    budget = step_budget(options, place.gpu, job.engine.seats)
    # Processors are shared by the GPUs, as where engines are placed.
    cores = _cores(place) / place.number
    found = fit(shape, place.gpu, budget, longest_tokens=longest, cores=cores)
    found = _told_as_given(found, job.engine)
    return _pinned(found, options, shape, place, budget) if found.parallel else found


def _options(engine: EngineConfig) -> dict[str, Any]:
    return {OTHER_NAMES.get(name, name): value for name, value in engine.options.items()}


def _told_as_given(found: Fit, engine: EngineConfig) -> Fit:
    """A setting of the job is not told as what is usual."""
    given = {
        "seats": engine.seats,
        "step tokens": _options(engine).get("max_num_batched_tokens"),
    }
    told = {name: f"{value:,}: as given" for name, value in given.items() if value}
    return msgspec.structs.replace(found, reasons=found.reasons | told)


def _pinned(
    found: Fit, options: Mapping[str, Any], shape: ModelShape, place: Place, budget: Budget
) -> Fit:
    """With what the job says of replicas, which are those over all GPUs, and of the KV cache."""
    number, pool = found.replicas, found.pool_tokens
    wide = msgspec.structs.replace(budget, tensor_parallel=found.parallel)
    if isinstance(options.get("replicas"), int):
        groups = max(1, place.number // found.parallel)
        number = max(1, options["replicas"] // groups)
        pool = pool_tokens(shape, place.gpu, wide, replicas=number)
    if options.get("kv_cache_memory_bytes"):
        pool = int(options["kv_cache_memory_bytes"]) // token_bytes(shape, wide) // number
    if options.get("num_gpu_blocks_override"):
        number, pool = 1, int(options["num_gpu_blocks_override"]) * BLOCK
    reasons = dict(found.reasons)
    if (number, pool) != (found.replicas, found.pool_tokens):
        reasons["replicas"] = f"{number} a GPU, each with {pool:,} tokens of KV cache: as given"
    return msgspec.structs.replace(found, replicas=number, pool_tokens=pool, reasons=reasons)


def _cores(place: Place) -> float:
    return len(os.sched_getaffinity(0)) if place.is_here else CORES_A_GPU * place.number
