"""Pod template -> what its schema lets through, and the API server or the node does not.

Promises: each mistake with the path of its field.
Knows nothing of: what owns the pod.
Source: the API reference of Kubernetes 1.33.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rowmill.kubernetes.fields import enum_mistakes

QUANTITY = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+|[munkMGTPE]|[KMGTPE]i)?")
ENUMS: dict[str, tuple[str, ...]] = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
}
POD_ENUMS: dict[str, tuple[str, ...]] = {
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "preemptionPolicy": ("Never", "PreemptLowerPriority"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Exists", "Equal")
NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
MEDIA = ("", "Memory", "HugePages")


def pod_mistakes(template: Mapping[str, Any], at: str) -> Iterator[str]:
    """What is wrong with a pod template at the path `at`."""
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        yield f"{at}spec: is needed and not there"
        return
    at += "spec."
    yield from enum_mistakes(spec, POD_ENUMS, at)
    volumes = _by_name(spec.get("volumes"))
    names: set[Any] = set()
    for group in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(group) or ()):
            if not isinstance(container, Mapping):
                continue
            inner = f"{at}{group}.{number}."
            if container.get("name") in names:
                yield f"{inner}name: `{container.get('name')}` is there twice"
            names.add(container.get("name"))
            yield from _container(container, inner, volumes, spec)
    for number, volume in enumerate(spec.get("volumes") or ()):
        yield from _volume(volume, f"{at}volumes.{number}.")
    yield from _tolerations(spec, at)
    yield from _affinity(spec, at)


def _by_name(things: Any) -> set[str]:
    return {str(one.get("name")) for one in things or () if isinstance(one, Mapping)}


def _container(
    container: Mapping[str, Any], at: str, volumes: set[str], spec: Mapping[str, Any]
) -> Iterator[str]:
    if not container.get("image"):
        yield f"{at}image: is needed and not there"
    yield from enum_mistakes(container, ENUMS, at)
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if isinstance(mount, Mapping) and str(mount.get("name")) not in volumes:
            yield f"{at}volumeMounts.{number}.name: there is no volume `{mount.get('name')}`"
    yield from _resources(container.get("resources"), f"{at}resources.")
    user = _user(container, spec)
    must = _nested(container, "securityContext", "runAsNonRoot")
    if must is None:
        must = _nested(spec, "securityContext", "runAsNonRoot")
    if must and user == 0:
        yield f"{at}securityContext.runAsUser: `0` is root, and `runAsNonRoot` is set"


def _user(container: Mapping[str, Any], spec: Mapping[str, Any]) -> Any:
    own = _nested(container, "securityContext", "runAsUser")
    return own if own is not None else _nested(spec, "securityContext", "runAsUser")


def _nested(holder: Mapping[str, Any], *names: str) -> Any:
    found: Any = holder
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _resources(resources: Any, at: str) -> Iterator[str]:
    if not isinstance(resources, Mapping):
        return
    asked = {group: resources.get(group) or {} for group in ("requests", "limits")}
    for group, amounts in asked.items():
        if isinstance(amounts, Mapping):
            yield from _amounts(amounts, f"{at}{group}.")
    for name in {*asked["requests"], *asked["limits"]}:
        request, limit = asked["requests"].get(name), asked["limits"].get(name)
        if _is_device(name) and request is not None and str(request) != str(limit):
            yield f"{at}limits.{name}: `{limit}`, and `{request}` is requested; of devices both are equal"


def _amounts(amounts: Mapping[str, Any], at: str) -> Iterator[str]:
    for name, amount in amounts.items():
        if not QUANTITY.fullmatch(str(amount)):
            yield f"{at}{name}: `{amount}` is no quantity, such as `16`, `500m` or `64Gi`"
        elif _is_device(name) and not str(amount).isdecimal():
            yield f"{at}{name}: `{amount}`; devices are whole ones (shares have resources of their own)"
        elif name == "gpu":
            yield f"{at}gpu: there is no such resource; `nvidia.com/gpu` is one"


def _is_device(name: str) -> bool:
    return "/" in name and not name.startswith("kubernetes.io/")


def _volume(volume: Any, at: str) -> Iterator[str]:
    empty = _nested(volume, "emptyDir") if isinstance(volume, Mapping) else None
    if not isinstance(empty, Mapping):
        return
    yield from enum_mistakes(empty, {"medium": MEDIA}, f"{at}emptyDir.")
    size = empty.get("sizeLimit")
    if size is not None and not QUANTITY.fullmatch(str(size)):
        yield f"{at}emptyDir.sizeLimit: `{size}` is no quantity, such as `16Gi`"


def _tolerations(spec: Mapping[str, Any], at: str) -> Iterator[str]:
    for number, one in enumerate(spec.get("tolerations") or ()):
        if not isinstance(one, Mapping):
            continue
        inner = f"{at}tolerations.{number}."
        yield from enum_mistakes(
            one, {"effect": EFFECTS, "operator": TOLERATION_OPERATORS}, inner
        )
        if one.get("operator") == "Exists" and one.get("value"):
            yield f"{inner}value: with `operator: Exists` there is none"


def _affinity(spec: Mapping[str, Any], at: str) -> Iterator[str]:
    node = _nested(spec, "affinity", "nodeAffinity")
    if not isinstance(node, Mapping):
        return
    at += "affinity.nodeAffinity."
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = []
    for number, one in enumerate(node.get(soft) or ()):
        weight = one.get("weight")
        if not isinstance(weight, int) or not 1 <= weight <= 100:
            yield f"{at}{soft}.{number}.weight: `{weight}`; 1 to 100"
        terms.append((f"{at}{soft}.{number}.preference.", one.get("preference") or {}))
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    for number, one in enumerate(_nested(node, hard, "nodeSelectorTerms") or ()):
        terms.append((f"{at}{hard}.nodeSelectorTerms.{number}.", one))
    for inner, term in terms:
        for number, wanted in enumerate(term.get("matchExpressions") or ()):
            place = f"{inner}matchExpressions.{number}."
            yield from enum_mistakes(wanted, {"operator": NODE_OPERATORS}, place)
            if wanted.get("operator") in ("In", "NotIn") and not wanted.get("values"):
                yield f"{place}values: `{wanted['operator']}` needs some"
