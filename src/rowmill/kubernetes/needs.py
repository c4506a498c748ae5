"""Job -> what a pod of it needs: GPUs, processors, memory, room on the node, each with its reason.

Promises: what the job file says stands; all else follows from the engine and the GPU.
Knows nothing of: manifests.
Source: 8 to 16 processors and twice the GPU's memory for each GPU, 16 GiB of /dev/shm: what users of vLLM settle on.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from rowmill import engines
from rowmill.config import Job
from rowmill.engines.vllm_place import step_budget
from rowmill.prospect import named_place, shape_of_model
from rowmill.size.gpus import GIB, TABLE, Gpu, gpu_named
from rowmill.size.replicas import CORES_A_REPLICA, number_for

GPU_ENGINES = ("vllm", "sglang", "transformers")
LEAST_CORES, MOST_CORES = 8, 16
OWN_CORES = 2
"""For reading, tokenising and writing, beside the engines."""
UNKNOWN_GPU_GIB = 80
UNKNOWN_MODEL_GIB = 200.0
OWN_GIB = 4.0
DRAIN_MARGIN_S = 22
"""From the end of the drain to the last outcome in the store, and to the end of the engine."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod asks for."""

    gpus: int
    cpu: float
    memory_gib: float
    shm_gib: float
    model_gib: float
    grace_s: int
    """From SIGTERM to SIGKILL."""
    reasons: dict[str, str]


def needs_of(job: Job) -> Needs:
    """What a pod of this job needs.

    Raises:
        UnknownName: `plan.gpu` is not in the table.
    """
    asked = job.kubernetes
    reasons: dict[str, str] = {}

    def settled(name: str, given: Any, derived: Any, why: str) -> Any:
        reasons[name] = "given" if given is not None else why
        return derived if given is None else given

    gpu = _gpu(job)
    gpus = settled("gpus", asked.gpus, *_gpus(job))
    model_gib, model_why = _model(job)
    shm, shm_why = (16.0, "engines share tensors through it") if gpus else (1.0, "no GPU")
    shm = settled("shm_gib", asked.shm_gib, shm, shm_why)
    cpu = settled("cpu", asked.cpu, *_cpu(job, gpu, gpus))
    memory = settled("memory_gib", asked.memory_gib, *_memory(gpu, gpus, model_gib, shm))
    room = settled("model_gib", asked.model_gib, math.ceil(1.2 * model_gib), model_why)
    grace = math.ceil(job.run.drain_s) + DRAIN_MARGIN_S
    reasons["grace"] = (
        f"`run.drain_s` of {job.run.drain_s:g} s, and {DRAIN_MARGIN_S} s to write down what is answered"
    )
    return Needs(
        gpus=gpus,
        cpu=cpu,
        memory_gib=memory,
        shm_gib=shm,
        model_gib=room,
        grace_s=grace,
        reasons=reasons,
    )


def _gpu(job: Job) -> Gpu | None:
    """The GPU that the job is planned for: named, or the first that is preferred."""
    if job.plan.gpu:
        return named_place(job.plan.gpu).gpu
    for product in job.kubernetes.prefer_gpus:
        for known in sorted(TABLE, key=len, reverse=True):
            if known.replace("-", "").lower() in product.replace("-", "").lower():
                return gpu_named(known)
    return None


def _gpus(job: Job) -> tuple[int, str]:
    engine = engines.resolve(job.engine)
    if engine.name not in GPU_ENGINES:
        return 0, f"`{engine.name}` uses none"
    found = [
        int(engine.options.get(name) or 1)
        for name in ("tensor_parallel_size", "pipeline_parallel_size")
    ]
    return math.prod(found), f"tensor parallel {found[0]} x pipeline parallel {found[1]}"


def _model(job: Job) -> tuple[float, str]:
    path = Path(job.engine.model or "-")
    if path.is_file():
        return path.stat().st_size / GIB, "the model's file, and a fifth"
    shape = shape_of_model(job.engine)
    if shape is not None:
        return shape.weight_bytes() / GIB, "the model's weights, and a fifth"
    return UNKNOWN_MODEL_GIB / 1.2, "the model is not here, so that its size is not known"


def _cpu(job: Job, gpu: Gpu | None, gpus: int) -> tuple[float, str]:
    if not gpus:
        local = engines.resolve(job.engine).name == "llamacpp"
        return (
            (LEAST_CORES, "the engine computes on them")
            if local
            else (2, "no engine in the pod computes")
        )
    shape = shape_of_model(job.engine)
    if gpu is None or shape is None:
        return LEAST_CORES * gpus, f"{LEAST_CORES} a GPU"
    budget = step_budget(job.engine.options, gpu, job.engine.seats)
    replicas, _ = number_for(shape, gpu, budget, MOST_CORES)
    wanted = math.ceil(OWN_CORES + replicas * CORES_A_REPLICA)
    each = min(MOST_CORES, max(LEAST_CORES, wanted))
    return each * gpus, f"{each} a GPU: {replicas} engine{'s' * (replicas > 1)} on it"


def _memory(gpu: Gpu | None, gpus: int, model_gib: float, shm_gib: float) -> tuple[float, str]:
    if not gpus:
        return math.ceil(
            model_gib + OWN_GIB + shm_gib
        ), f"the model, {OWN_GIB:g} GiB, and /dev/shm, which counts to it"
    gib = math.ceil(gpu.memory_bytes / GIB) if gpu is not None else UNKNOWN_GPU_GIB
    whose = f"of `{gpu.name}`" if gpu is not None else "of a GPU that is not named (`plan.gpu`)"
    return 2 * gib * gpus + math.ceil(
        shm_gib
    ), f"twice the {gib} GiB {whose}, and /dev/shm, which counts to it"
