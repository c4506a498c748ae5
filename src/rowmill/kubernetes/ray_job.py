"""Job -> a RayJob of KubeRay: a head, and workers that hold the GPUs; for clusters where Ray is what people look at.

Promises: the same pods, inputs and secrets as the Indexed Job; the head holds no GPU.
Knows nothing of: how rowmill uses Ray.
Source: API reference of KubeRay 1.5. A head that dies ends the RayJob: prefer the Indexed Job, which has none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.kubernetes.documents import Document
from rowmill.kubernetes.indexed_job import config_map, name_of
from rowmill.kubernetes.needs import Needs
from rowmill.kubernetes.pod import JOB_FILE, labels, pod_template

MOST_NAME = 47
"""KubeRay makes names of services from it."""
HEAD = Needs(gpus=0, cpu=4, memory_gib=16, shm_gib=4, model_gib=0, grace_s=30, reasons={})


def ray_job(job: Job, needs: Needs) -> list[Document]:
    """The documents, in the order in which they are to be made."""
    name = name_of(job)[:MOST_NAME].rstrip("-")
    asked = job.kubernetes
    parallelism = asked.workers if asked.parallelism is None else asked.parallelism
    queue = {"kueue.x-k8s.io/queue-name": asked.queue} if asked.queue else {}
    bare = asked.model_copy(update={"model_claim": "", "prefer_gpus": (), "spot": "no"})
    head = job.model_copy(update={"kubernetes": bare})
    metadata = {"name": name, "labels": {**labels(name), **queue}}
    if asked.namespace:
        metadata["namespace"] = asked.namespace
    workers = {
        "groupName": "workers",
        "replicas": parallelism,
        "minReplicas": 0,
        "maxReplicas": asked.workers,
        "rayStartParams": {"num-gpus": str(needs.gpus)},
        "template": _ray_pod(job, needs, name),
    }
    spec: dict[str, Any] = {
        "entrypoint": f"rowmill run {JOB_FILE} --executor ray",
        "submissionMode": "K8sJobMode",
        "backoffLimit": asked.restarts,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": asked.keep_s,
        "rayClusterSpec": {
            "rayVersion": asked.ray_version,
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {
                # No task is put beside what keeps the cluster together.
                "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
                "template": _ray_pod(head, HEAD, name),
            },
            "workerGroupSpecs": [workers],
        },
    }
    if asked.queue:
        spec["suspend"] = True
    document = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}
    return [config_map(job, name), document]


def _ray_pod(job: Job, needs: Needs, name: str) -> dict[str, Any]:
    """A worker's pod whose command is KubeRay's to give, and which Ray may keep its files in."""
    template: dict[str, Any] = msgspec.to_builtins(
        pod_template(job, needs, name=name).to_dict()
    )
    template["spec"].pop("restartPolicy")
    container = template["spec"]["containers"][0]
    del container["command"], container["args"]
    container["env"] = [one for one in container["env"] if one["name"] not in _SLOTS]
    container["volumeMounts"].append({"name": "scratch", "mountPath": "/tmp"})
    return template


_SLOTS = ("ROWMILL_TOKEN", "ROWMILL_WORKER", "ROWMILL_WORKERS")
"""What tells workers of an Indexed Job apart."""
