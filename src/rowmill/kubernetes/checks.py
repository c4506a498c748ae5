"""Document -> what a cluster would refuse, or take and never run: each with the path of its field.

Promises: kinds, fields and types are those of the cluster's version; enumerations and rules between fields, which the
schemas leave out, are checked beside them. No cluster is asked.
Knows nothing of: jobs of rowmill; any manifest may be given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowmill.kubernetes.documents import Document
from rowmill.kubernetes.fields import schema_mistakes
from rowmill.kubernetes.job_checks import job_mistakes
from rowmill.kubernetes.ray_checks import ray_mistakes

KINDS = {
    "Job": "batch/v1",
    "ConfigMap": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "PersistentVolumeClaim": "v1",
    "Secret": "v1",
    "Deployment": "apps/v1",
    "Service": "v1",
    "RayJob": "ray.io/v1",
}
"""Kinds that are looked at beyond their schema."""


def is_foreign(document: Document) -> bool:
    """Whether the object is of an extension whose schema is not known here: nothing can be said of it."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    is_own = "." not in group or (group.endswith(".k8s.io") and "x-k8s.io" not in group)
    return not is_own and document.get("kind") != "RayJob"


def mistakes(document: Document, version: str) -> list[str]:
    """Everything that is wrong with a document, each as `PATH: what`.

    Args:
        version: of the cluster, as `1.33`.
    """
    kind, api = document.get("kind"), document.get("apiVersion")
    found = list(_kind(kind, api))
    if found:
        return found
    if kind == "RayJob":
        return list(ray_mistakes(document, version))
    found = list(schema_mistakes(document, version))
    if kind == "Job":
        found += job_mistakes(document)
    # The schema and the rules may see the same.
    seen: dict[str, str] = {}
    for line in found:
        seen.setdefault(line.partition(": ")[0], line)
    return list(seen.values())


def _kind(kind: Any, api: Any) -> Iterator[str]:
    if not isinstance(kind, str) or not isinstance(api, str):
        yield "kind: every object has a `kind` and an `apiVersion`"
        return
    if "job" in kind.lower() and kind not in {*KINDS, "CronJob", "RayJob"}:
        yield (
            f"kind: there is no `{kind}`; an Indexed Job is `kind: Job` of `batch/v1` with"
            " `spec.completionMode: Indexed`"
        )
        return
    wanted = KINDS.get(kind)
    if wanted is not None and api != wanted:
        yield f"apiVersion: `{api}` has no `{kind}`; it is in `{wanted}`"
