"""Objects as API servers tell them, with what these tests turn on; written after the API reference and real messages."""

from __future__ import annotations

from typing import Any

NAME = "rowmill-reviews"


def job(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"completionMode": "Indexed", "completions": 4, "parallelism": 4},
        "status": status,
    }


def failed_job(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    return job(conditions=[condition], failedIndexes="1,3")


def pod(index: int = 0, phase: str = "Pending", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{NAME}-{index}-x7k2p",
            "labels": {
                "app.kubernetes.io/instance": NAME,
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        },
        "spec": {"containers": [{"name": "rowmill", "image": "registry.example/rowmill:0.1"}]},
        "status": {"phase": phase, **status},
    }


def unschedulable(message: str) -> dict[str, Any]:
    return pod(
        conditions=[
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            }
        ]
    )


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"name": "rowmill", "ready": False, "state": state}])


def ended(
    code: int, message: str = "", reason: str = "Error", *, disrupted: str = ""
) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    conditions = (
        [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}]
        if disrupted
        else []
    )
    return pod(
        phase="Failed",
        conditions=conditions,
        containerStatuses=[{"name": "rowmill", "ready": False, "state": state}],
    )


def evicted(message: str) -> dict[str, Any]:
    return pod(phase="Failed", reason="Evicted", message=message)


def event(reason: str, message: str, kind: str = "Job", name: str = NAME) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.17f0"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": {"kind": kind, "name": name, "namespace": "default"},
    }
