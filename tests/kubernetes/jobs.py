"""Jobs of these tests, as a user writes them."""

from __future__ import annotations

from typing import Any

from rowmill.config import Job
from rowmill.engines import check_options
from rowmill.job_file import load_job
from rowmill.kubernetes.asked import elsewhere

PLAIN: dict[str, Any] = {
    "source": ["s3://bucket/in/*.jsonl"],
    "output.path": "s3://bucket/runs/reviews",
    "prompt": "{text}",
    "engine.name": "echo",
    "kubernetes.image": "registry.example/rowmill:0.1",
}


def job_of(**settings: Any) -> Job:
    """A job from dotted settings over the plain one; `__` stands for a dot."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return load_job(
        None,
        settings={**PLAIN, **given},
        needs=("source", "output"),
        check_options=lambda engine: check_options(elsewhere(engine)),
    )
