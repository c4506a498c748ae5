"""A RayJob -> what KubeRay would refuse: there is no published schema of it, so its fields are told here.

Promises: fields and values of a RayJob, and pods as a Job's are; no cluster is asked.
Knows nothing of: Ray.
Source: API reference of KubeRay 1.5 (`ray.io/v1`, RayJob, RayCluster).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from rowmill.kubernetes.documents import Document
from rowmill.kubernetes.fields import enum_mistakes, name_mistakes, schema_mistakes
from rowmill.kubernetes.pod_checks import pod_mistakes

SPEC: dict[str, type] = {
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "clusterSelector": dict,
    "deletionStrategy": dict,
    "entrypoint": str,
    "entrypointNumCpus": float,
    "entrypointNumGpus": float,
    "entrypointResources": str,
    "jobId": str,
    "managedBy": str,
    "metadata": dict,
    "preRunningDeadlineSeconds": int,
    "rayClusterSpec": dict,
    "runtimeEnvYAML": str,
    "shutdownAfterJobFinishes": bool,
    "submissionMode": str,
    "submitterConfig": dict,
    "submitterPodTemplate": dict,
    "suspend": bool,
    "ttlSecondsAfterFinished": int,
}
CLUSTER: dict[str, type] = {
    "authOptions": dict,
    "autoscalerOptions": dict,
    "enableInTreeAutoscaling": bool,
    "gcsFaultToleranceOptions": dict,
    "headGroupSpec": dict,
    "headServiceAnnotations": dict,
    "managedBy": str,
    "rayVersion": str,
    "suspend": bool,
    "upgradeStrategy": dict,
    "workerGroupSpecs": list,
}
HEAD: dict[str, type] = {
    "enableIngress": bool,
    "headService": dict,
    "labels": dict,
    "rayStartParams": dict,
    "resources": dict,
    "serviceType": str,
    "template": dict,
}
WORKERS: dict[str, type] = {
    "groupName": str,
    "idleTimeoutSeconds": int,
    "labels": dict,
    "maxReplicas": int,
    "minReplicas": int,
    "numOfHosts": int,
    "rayStartParams": dict,
    "replicas": int,
    "resources": dict,
    "scaleStrategy": dict,
    "suspend": bool,
    "template": dict,
}
MODES = {"spec.submissionMode": ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")}
WORDS = {int: "a whole number", float: "a number", bool: "`true` or `false`", str: "a text"}


def ray_mistakes(document: Document, version: str) -> Iterator[str]:
    """Everything that is wrong with a RayJob."""
    yield from name_mistakes(document, most=47)
    yield from enum_mistakes(document, MODES)
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        yield "spec: is needed and not there"
        return
    yield from _fields(spec, SPEC, "spec.")
    if not spec.get("entrypoint") and spec.get("submissionMode") != "InteractiveMode":
        yield "spec.entrypoint: is needed and not there"
    if spec.get("ttlSecondsAfterFinished") and not spec.get("shutdownAfterJobFinishes"):
        yield "spec.ttlSecondsAfterFinished: needs `spec.shutdownAfterJobFinishes: true`"
    cluster = spec.get("rayClusterSpec")
    if not isinstance(cluster, Mapping):
        if not spec.get("clusterSelector"):
            yield "spec.rayClusterSpec: is needed where `spec.clusterSelector` is not there"
        return
    at = "spec.rayClusterSpec."
    yield from _fields(cluster, CLUSTER, at)
    head = cluster.get("headGroupSpec")
    yield from _group(head, HEAD, f"{at}headGroupSpec.", version)
    for number, group in enumerate(cluster.get("workerGroupSpecs") or ()):
        inner = f"{at}workerGroupSpecs.{number}."
        yield from _group(group, WORKERS, inner, version)
        yield from _replicas(group, inner)


def _group(group: Any, fields: dict[str, type], at: str, version: str) -> Iterator[str]:
    if not isinstance(group, Mapping):
        yield f"{at.removesuffix('.')}: is needed and not there"
        return
    yield from _fields(group, fields, at)
    params = group.get("rayStartParams")
    for name, value in params.items() if isinstance(params, Mapping) else ():
        if not isinstance(value, str):
            yield f"{at}rayStartParams.{name}: is to be a text, in quotes"
    template = group.get("template")
    if not isinstance(template, Mapping):
        yield f"{at}template: is needed and not there"
        return
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    yield from schema_mistakes(pod, version, f"{at}template.")
    yield from pod_mistakes(template, f"{at}template.")


def _replicas(group: Any, at: str) -> Iterator[str]:
    if not isinstance(group, Mapping):
        return
    if not group.get("groupName"):
        yield f"{at}groupName: is needed and not there"
    counts = [group.get(name) for name in ("minReplicas", "replicas", "maxReplicas")]
    known = [count for count in counts if isinstance(count, int)]
    if known != sorted(known):
        yield f"{at}replicas: `minReplicas`, `replicas` and `maxReplicas` are {known}, and grow in this order"


def _fields(holder: Mapping[str, Any], fields: dict[str, type], at: str) -> Iterator[str]:
    for name, value in holder.items():
        wanted = fields.get(name)
        if wanted is None:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            yield f"{at}{name}: there is no such field{hint}"
        elif not _is_of(value, wanted):
            yield f"{at}{name}: is to be {WORDS.get(wanted, 'an object or a list')}"


def _is_of(value: Any, wanted: type) -> bool:
    if wanted in (int, float):
        return isinstance(value, (int, wanted)) and not isinstance(value, bool)
    return isinstance(value, wanted)
