"""Job -> an Indexed Job without a driver, the job file as a ConfigMap, a PriorityClass where a value is named.

Promises: a death counts against its index alone; disruptions and clean drains count against nobody; what no restart
mends (a refused job, nearly all rows failing) ends the whole Job at once.
Knows nothing of: what a pod looks like inside.
Source: exit codes as in docs/cli.md; the Job API of Kubernetes 1.33.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rowmill.config import Job
from rowmill.kubernetes.needs import Needs
from rowmill.kubernetes.pod import CONTAINER, labels, pod_template
from rowmill.shown.toml_text import toml_of

if TYPE_CHECKING:
    from lightkube.models import batch_v1

Document = dict[str, Any]
REFUSED, STOPPED_EARLY = 2, 5
INTERRUPTED, DRAINED = 130, 143
MOST_NAME = 52
"""Pods are called NAME-INDEX-xxxxx, and host names end at 63 characters."""


def name_of(job: Job) -> str:
    """Name of everything that belongs to the job."""
    if job.kubernetes.name:
        return job.kubernetes.name
    last = job.output.path.rstrip("/").rpartition("/")[2].lower()
    plain = re.sub(r"[^a-z0-9]+", "-", last).strip("-")
    return f"rowmill-{plain or 'run'}"[:MOST_NAME].rstrip("-")


def job_text(job: Job) -> str:
    """The job file that pods read: what differs from the defaults; what pods are is not their business."""
    tree = job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    tree.pop("kubernetes", None)
    return toml_of(tree)


def indexed_job(job: Job, needs: Needs) -> list[Document]:
    """The documents, in the order in which they are to be made."""
    asked, name = job.kubernetes, name_of(job)
    found = [config_map(job, name)]
    if asked.priority_class and asked.priority is not None:
        found.insert(0, _priority_class(asked.priority_class, asked.priority))
    return [*found, _document("batch/v1", "Job", job, name, _spec(job, needs, name))]


def config_map(job: Job, name: str) -> Document:
    """The job file, as pods get it."""
    from lightkube.models import core_v1, meta_v1

    made = core_v1.ConfigMap(
        apiVersion="v1",
        kind="ConfigMap",
        metadata=meta_v1.ObjectMeta(
            name=name, namespace=job.kubernetes.namespace or None, labels=labels(name)
        ),
        data={"job.toml": job_text(job)},
    )
    return dict(made.to_dict())


def _document(version: str, kind: str, job: Job, name: str, spec: batch_v1.JobSpec) -> Document:
    from lightkube.models import batch_v1, meta_v1

    queue = job.kubernetes.queue
    more = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    made = batch_v1.Job(
        apiVersion=version,
        kind=kind,
        metadata=meta_v1.ObjectMeta(
            name=name,
            namespace=job.kubernetes.namespace or None,
            labels={**labels(name), **more},
        ),
        spec=spec,
    )
    return dict(made.to_dict())


def _spec(job: Job, needs: Needs, name: str) -> batch_v1.JobSpec:
    from lightkube.models import batch_v1

    asked = job.kubernetes
    parallelism = asked.workers if asked.parallelism is None else asked.parallelism
    return batch_v1.JobSpec(
        completionMode="Indexed",
        completions=asked.workers,
        parallelism=min(parallelism, asked.workers),
        # Kueue lets it go once there is room.
        suspend=True if asked.queue else None,
        backoffLimitPerIndex=asked.restarts,
        maxFailedIndexes=asked.workers
        if asked.max_failed_workers is None
        else asked.max_failed_workers,
        podFailurePolicy=batch_v1.PodFailurePolicy(rules=_failure_rules()),
        # Two pods of an index do no harm, but a GPU is not there twice.
        podReplacementPolicy="Failed",
        ttlSecondsAfterFinished=asked.keep_s,
        template=pod_template(job, needs, name=name),
    )


def _failure_rules() -> list[batch_v1.PodFailurePolicyRule]:
    from lightkube.models import batch_v1

    def on_exit(action: str, *codes: int) -> batch_v1.PodFailurePolicyRule:
        wanted = batch_v1.PodFailurePolicyOnExitCodesRequirement(
            containerName=CONTAINER, operator="In", values=list(codes)
        )
        return batch_v1.PodFailurePolicyRule(action=action, onExitCodes=wanted)

    disrupted = batch_v1.PodFailurePolicyOnPodConditionsPattern(
        type="DisruptionTarget", status="True"
    )
    # The first that fits counts: a pod that is pushed aside may end with any code.
    return [
        batch_v1.PodFailurePolicyRule(action="Ignore", onPodConditions=[disrupted]),
        on_exit("Ignore", INTERRUPTED, DRAINED),
        on_exit("FailJob", REFUSED, STOPPED_EARLY),
    ]


def _priority_class(name: str, value: int) -> Document:
    from lightkube.models import meta_v1, scheduling_v1

    made = scheduling_v1.PriorityClass(
        apiVersion="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata=meta_v1.ObjectMeta(name=name),
        value=value,
        # Batches wait for room; they push nobody aside.
        preemptionPolicy="Never",
        description="Batches of rowmill: what serves people comes first.",
    )
    return dict(made.to_dict())
