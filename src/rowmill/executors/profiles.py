"""`plan.profile` -> settings that a job left open.

Promises: what the job sets stays; each setting that is filled in is told with its reason; none of them changes answers.
Knows nothing of: rows.
"""

from __future__ import annotations

from typing import Any

from rowmill.config import EngineConfig, Job
from rowmill.feed import Feed
from rowmill.rows import Limits
from rowmill.size.profiles import DEADLINE_S, PROFILES, Profile

CHECKPOINTS_A_DEADLINE = 2
"""An outcome is safe, and where an object store has it seen, in half the time it is wanted in."""


def profiled(job: Job) -> Job:
    """The job with its profile's settings where it has none of its own; `batch` changes nothing."""
    profile = PROFILES[job.plan.profile]
    if job.plan.profile == "batch":
        return job
    deadline = job.plan.deadline_s or DEADLINE_S
    soon = min(job.run.checkpoint_s, deadline / CHECKPOINTS_A_DEADLINE)
    run = job.run.model_copy(update={"checkpoint_s": soon})
    return job.model_copy(update={"run": run, "engine": _engine(job.engine, profile)})


def feed_of(job: Job, limits: Limits) -> Feed:
    """The feed of a job: rows wait as long before the engine as its profile lets them."""
    ahead_s = PROFILES[job.plan.profile].ahead_s
    return Feed(limits, prove_rows=job.run.max_failed_after, ahead_s=ahead_s)


def profile_reason(job: Job) -> str:
    """What the profile stands for, in words; empty for batches of engines that it tells nothing."""
    usual = f"{job.plan.profile}: {PROFILES[job.plan.profile].usual} are usual"
    if job.plan.profile == "batch":
        return usual if job.engine.name == "vllm" else ""
    return f"{usual}; outcomes are safe every {job.run.checkpoint_s:g} s"


def _engine(engine: EngineConfig, profile: Profile) -> EngineConfig:
    if engine.name != "vllm":
        return engine
    filled: dict[str, Any] = {
        "seats": profile.seats,
        "max_num_batched_tokens": profile.step_tokens,
        "gpu_memory_utilization": profile.memory_share,
    }
    tree = engine.model_dump()
    new = {name: value for name, value in filled.items() if tree.get(name) is None}
    return EngineConfig.model_validate({**tree, **new})
