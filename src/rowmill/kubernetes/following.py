"""A job on a cluster: made, looked at, listened to.

Promises: a Job that runs is never touched; one that ended is replaced, and goes on with what lies at the output.
Knows nothing of: manifests (see render.py), troubles (see diagnose.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.errors import ConfigError, StorageError
from rowmill.kubernetes import kubectl
from rowmill.kubernetes.diagnose import Diagnosis, diagnose
from rowmill.kubernetes.documents import Document
from rowmill.kubernetes.indexed_job import name_of

ENDS = ("Complete", "Failed")
INDEX = "batch.kubernetes.io/job-completion-index"


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """How far a Job is, as the cluster tells."""

    job: str
    state: str
    """`waiting`, `running`, `complete`, `failed` or `absent`."""
    workers: int
    done: int
    failed_indexes: str
    parallelism: int
    pods: dict[str, int]
    rows: list[str]
    """What the output tells, where it can be read from here."""

    def lines(self) -> Iterator[str]:
        """For people."""
        counts = ", ".join(f"{number} {phase}" for phase, number in sorted(self.pods.items()))
        yield f"{self.job}: {self.state}"
        if self.state != "absent":
            yield f"workers {self.done} of {self.workers} ended, {self.parallelism} at a time"
            yield f"pods    {counts or 'none'}"
        if self.failed_indexes:
            yield f"failed  indexes {self.failed_indexes}"
        yield from self.rows


def submit(job: Job, documents: list[Document]) -> Iterator[str]:
    """Make the documents in the cluster; what was done.

    Raises:
        ConfigError: it runs already, or the cluster does not take them.
    """
    namespace, last = job.kubernetes.namespace, documents[-1]
    kind, name = str(last["kind"]).lower(), str(last["metadata"]["name"])
    found = kubectl.get(kind, name, namespace=namespace)
    if found and not ended(found[0]):
        reason = (
            f"`{kind}/{name}` runs already; `rowmill k8s status` tells how far it is,"
            f" `kubectl delete {kind} {name}` ends it (what is answered is kept)"
        )
        raise ConfigError(reason=reason)
    if found:
        kubectl.ask(["delete", kind, name, "--wait=true"], namespace=namespace)
        yield f"{kind}/{name} had ended; it is replaced, and goes on with what lies at the output"
    for document in documents[:-1]:
        kubectl.ask(["apply", "-f", "-"], namespace=namespace, given=json.dumps(document))
        yield f"{document['kind'].lower()}/{document['metadata']['name']}"
    kubectl.ask(["create", "-f", "-"], namespace=namespace, given=json.dumps(last))
    yield f"{kind}/{name} made"


def ended(thing: Document) -> bool:
    """Whether a Job is over."""
    status = thing.get("status") or {}
    if status.get("jobStatus") in ("SUCCEEDED", "FAILED", "STOPPED"):
        return True
    return any(
        condition.get("type") in ENDS and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def follow(job: Job) -> Following:
    """How far the Job is."""
    name, namespace = name_of(job), job.kubernetes.namespace
    found = kubectl.get("job", name, namespace=namespace)
    thing: dict[str, Any] = found[0] if found else {}
    spec, status = thing.get("spec") or {}, thing.get("status") or {}
    return Following(
        job=name,
        state=_state(thing),
        workers=int(spec.get("completions") or 0),
        done=int(status.get("succeeded") or 0),
        failed_indexes=str(status.get("failedIndexes") or ""),
        parallelism=int(spec.get("parallelism") or 0),
        pods=dict(Counter(str(pod["status"].get("phase")) for pod in pods_of(job))),
        rows=_rows(job),
    )


def _state(thing: Document) -> str:
    if not thing:
        return "absent"
    status = thing.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") in ENDS and condition.get("status") == "True":
            return str(condition["type"]).lower()
    is_waiting = thing["spec"].get("suspend") or not status.get("ready")
    return "waiting" if is_waiting else "running"


def _rows(job: Job) -> list[str]:
    from rowmill import report

    try:
        found = report.status(job.output.path)
    except (ConfigError, StorageError) as error:
        return [f"output  not read from here: {error}"]
    return [f"output  {line}" if not at else line for at, line in enumerate(found.lines())]


def pods_of(job: Job) -> list[dict[str, Any]]:
    """The job's pods."""
    label = f"app.kubernetes.io/instance={name_of(job)}"
    return kubectl.get("pods", "-l", label, namespace=job.kubernetes.namespace)


def logs(job: Job, *, index: int | None, tail: int) -> Iterator[str]:
    """The last lines of each pod, its name before them."""
    for pod in pods_of(job):
        labels = pod["metadata"].get("labels") or {}
        if index is not None and labels.get(INDEX) != str(index):
            continue
        name = str(pod["metadata"]["name"])
        try:
            text = kubectl.ask(
                ["logs", name, f"--tail={tail}"], namespace=job.kubernetes.namespace
            )
        except ConfigError as error:
            text = f"({error})"
        yield from (f"{name}  {line}" for line in text.splitlines())


def diagnosed(job: Job) -> Diagnosis:
    """What is wrong, as far as the cluster tells."""
    namespace, name = job.kubernetes.namespace, name_of(job)
    objects = kubectl.get("job", name, namespace=namespace) + pods_of(job)
    mine = {str(thing["metadata"]["name"]) for thing in objects}
    events = kubectl.get("events", namespace=namespace)
    objects += [e for e in events if str(e.get("involvedObject", {}).get("name")) in mine]
    return diagnose(objects)
