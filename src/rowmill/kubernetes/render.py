"""Job -> a file for `kubectl apply` or `sbatch`, checked.

Promises: what would be refused, or run nothing, is never written.
Knows nothing of: clusters.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rowmill.config import Job
from rowmill.errors import BadJob
from rowmill.kubernetes.asked import check_asked, notes
from rowmill.kubernetes.checks import mistakes
from rowmill.kubernetes.documents import Document, as_yaml, need_extra
from rowmill.kubernetes.indexed_job import indexed_job
from rowmill.kubernetes.needs import needs_of
from rowmill.kubernetes.ray_job import ray_job
from rowmill.kubernetes.slurm import slurm_script

Form = Literal["job", "rayjob", "slurm"]


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster is given."""

    text: str
    documents: list[Document]
    reasons: dict[str, str]
    notes: list[str]


def render(job: Job, form: Form = "job") -> Rendered:
    """Make the documents, or the script, of a job.

    Raises:
        BadJob: a pod could not run it, or a cluster would not take it.
    """
    if form == "slurm":
        needs = needs_of(job)
        return Rendered(
            text=slurm_script(job, needs), documents=[], reasons=needs.reasons, notes=[]
        )
    need_extra()
    check_asked(job)
    needs = needs_of(job)
    documents = ray_job(job, needs) if form == "rayjob" else indexed_job(job, needs)
    check_documents(documents, "rendered", job.kubernetes.version)
    return Rendered(
        text=as_yaml(documents, needs.reasons),
        documents=documents,
        reasons=needs.reasons,
        notes=list(notes(job)),
    )


def check_documents(documents: list[Document], where: str, version: str) -> None:
    """See that a cluster would take these, and run what they say.

    Raises:
        BadJob: with every mistake, each by the path of its field.
    """
    many = len(documents) > 1
    found = [
        f"{document.get('kind', 'object')} {line}" if many else line
        for document in documents
        for line in mistakes(document, version)
    ]
    if found:
        raise BadJob(where=where, mistakes=found)
