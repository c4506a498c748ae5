"""Job -> what keeps a pod from running it, in words of the job file.

Promises: every mistake at once; what only this machine has (files, folders, standard input) is refused by name.
Knows nothing of: manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rowmill.config import EngineConfig, Job
from rowmill.errors import BadJob
from rowmill.kubernetes.pod import JOB_FOLDER, MODEL_STORE, MODELS, SCRATCH
from rowmill.sink_address import parse_sink

RESERVED = (JOB_FOLDER, MODELS, MODEL_STORE, SCRATCH, "/dev", "/proc", "/sys", "/etc")
REFERENCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-._a-zA-Z0-9]+")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SECRET_LIKE = re.compile(
    r"(SECRET|TOKEN|PASSWORD|API_?KEY|ACCESS_KEY|CREDENTIAL)", re.IGNORECASE
)
DERIVED = ("ROWMILL_TOKEN", "ROWMILL_WORKER", "ROWMILL_WORKERS", "JOB_COMPLETION_INDEX")
LEAST_SPOT_NOTICE_S = 25
"""GKE tells a pod of its node's end so long before; others tell earlier."""


def elsewhere(engine: EngineConfig) -> EngineConfig:
    """The engine as it can be checked here: without secrets, and with a name for a model that pods alone have."""
    kept = {
        name: value
        for name, value in engine.model_dump(exclude_unset=True).items()
        if not list(_referred({name: value}))
    }
    if engine.model.startswith(f"{MODELS}/"):
        kept["model"] = "models/there"
    return EngineConfig(**kept)


def check_asked(job: Job, *, needs_image: bool = True) -> None:
    """Refuse a job that a pod cannot run.

    Raises:
        BadJob: with every mistake found.
    """
    mistakes = [
        *(_image(job) if needs_image else ()),
        *_places(job),
        *_model(job),
        *_sharing(job),
        *_variables(job),
        *_references(job),
    ]
    if mistakes:
        raise BadJob(where="[kubernetes]", mistakes=mistakes)


def notes(job: Job) -> Iterator[str]:
    """What is allowed and may surprise."""
    if job.kubernetes.spot != "no" and job.run.drain_s > LEAST_SPOT_NOTICE_S - 5:
        yield (
            f"`run.drain_s` is {job.run.drain_s:g}, and a spot node may go {LEAST_SPOT_NOTICE_S} s after it says so:"
            " rows in flight at its end are asked again"
        )
    if job.kubernetes.priority is not None and not job.kubernetes.priority_class:
        yield "`kubernetes.priority` has no effect without `kubernetes.priority_class`, the name of its class"
    if job.kubernetes.spot in ("prefer", "only") and job.run.checkpoint_s > 60:
        yield f"`run.checkpoint_s` is {job.run.checkpoint_s:g}: a node that goes without a word repeats so many seconds"


def _image(job: Job) -> Iterator[str]:
    if not job.kubernetes.image:
        yield (
            "`image` is not set; build `deploy/kubernetes/Dockerfile`, push it to a registry of your cluster, and"
            ' name it: image = "REGISTRY/rowmill:TAG"'
        )


def _places(job: Job) -> Iterator[str]:
    for path, whose in job.kubernetes.claims.items():
        taken = [other for other in RESERVED if path == other or path.startswith(f"{other}/")]
        if not path.startswith("/") or path == "/" or taken:
            yield f"`claims`: `{path}` is no path that a volume can be mounted at; name one such as `/work`"
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", whose):
            yield f"`claims`: `{whose}` is no name of a volume claim"
    for what, places in (("source", job.source), ("output", (job.output.path,))):
        for place in places:
            if "://" in place or _is_below(place, job.kubernetes.claims):
                continue
            yield (
                f"`{what}` is `{place}`, which a pod does not have: name an object store (`s3://...`),"
                " or a path below a volume of `kubernetes.claims`"
            )


def _is_below(place: str, claims: dict[str, str]) -> bool:
    return any(place == path or place.startswith(f"{path.rstrip('/')}/") for path in claims)


def _model(job: Job) -> Iterator[str]:
    model = job.engine.model
    if job.kubernetes.model_claim and not model.startswith(f"{MODELS}/"):
        yield f"`model_claim` is set, and `engine.model` is `{model}`: name the model's path in it, below `{MODELS}/`"
    for name in ("model", "tokenizer", "chat_template"):
        path = getattr(job.engine, name)
        is_there = path.startswith(f"{MODELS}/") and bool(job.kubernetes.model_claim)
        if not path or is_there or _is_below(path, job.kubernetes.claims):
            continue
        if Path(path).is_absolute() or Path(path).exists():
            yield (
                f"`engine.{name}` is `{path}`, which a pod does not have: put it into a volume"
                " (`model_claim`, `claims`), or into the image"
            )


def _sharing(job: Job) -> Iterator[str]:
    asked = job.kubernetes
    is_mig, is_hami = asked.gpu_sharing == "mig", asked.gpu_sharing == "hami"
    if is_mig and not (asked.mig_profile or asked.gpu_resource):
        yield '`gpu_sharing` is `mig`: name the part, as `mig_profile = "1g.10gb"`'
    if asked.mig_profile and not is_mig:
        yield f'`mig_profile` is set and `gpu_sharing` is `{asked.gpu_sharing}`; set `gpu_sharing = "mig"`'
    if (asked.gpu_memory_mib or asked.gpu_cores) and not is_hami:
        yield f'`gpu_memory_mib` and `gpu_cores` are HAMi\'s; set `gpu_sharing = "hami"`, not `{asked.gpu_sharing}`'
    if is_hami and not asked.gpu_memory_mib:
        yield "`gpu_sharing` is `hami`: without `gpu_memory_mib` a pod gets the whole memory; name it"
    if asked.max_failed_workers is not None and asked.max_failed_workers > asked.workers:
        yield f"`max_failed_workers` is {asked.max_failed_workers}, over the {asked.workers} of `workers`"


def _variables(job: Job) -> Iterator[str]:
    asked = job.kubernetes
    for name in (*asked.secrets, *asked.environment):
        if not VARIABLE.fullmatch(name) or name in DERIVED:
            yield f"`{name}` is no variable that can be set"
    for name, reference in asked.secrets.items():
        if not REFERENCE.fullmatch(reference):
            # What stands there may be the secret itself.
            yield f"`secrets.{name}` is no reference; put the value into a Secret of the cluster and name `SECRET/KEY`"
    for name in asked.environment:
        if SECRET_LIKE.search(name):
            yield f"`environment.{name}` looks like a secret, and would stand in the manifest: refer to it in `secrets`"


def _references(job: Job) -> Iterator[str]:
    asked = job.kubernetes
    referred = set(_referred(job.engine.model_dump()))
    if job.sink.to:
        referred |= {parse_sink(job.sink.to).password} - {""}
    for name in sorted(referred - {*asked.secrets, *asked.environment}):
        yield f'the job refers to `env:{name}`, which pods do not have: set `secrets.{name} = "SECRET/KEY"`'


def _referred(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _referred(inner)
    elif isinstance(value, str) and value.startswith("env:"):
        yield value.removeprefix("env:")
