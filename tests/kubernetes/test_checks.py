"""Manifests that clusters refuse, or take and never run, are refused here with the field named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowmill.cli import main
from rowmill.kubernetes.checks import is_foreign, mistakes
from rowmill.kubernetes.documents import read_documents
from rowmill.kubernetes.render import render
from tests.kubernetes.jobs import job_of

Spoil = Callable[[dict[str, Any]], None]
RICH: dict[str, Any] = {
    "engine.name": "vllm",
    "engine.model": "org/model",
    "plan.gpu": "L4",
    "kubernetes.workers": 8,
    "kubernetes.prefer_gpus": ["NVIDIA-L4"],
    "kubernetes.spot": "only",
}
JOB = render(job_of(**RICH)).documents[-1]
RAY = render(job_of(**RICH), "rayjob").documents[-1]
POD = "spec.template.spec."
DEPLOYED = sorted((Path(__file__).parents[2] / "deploy").rglob("*.yaml"))
BOX = f"{POD}containers.0."
RULES = "spec.podFailurePolicy.rules."
NODES = f"{POD}affinity.nodeAffinity."


def at(path: str, value: Any, *, name: str = "") -> Spoil:
    """Put a value at a path; with `name` the key is spelt so."""

    def spoil(document: dict[str, Any]) -> None:
        *way, last = path.split(".")
        place: Any = document
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if name:
            place[name] = place.pop(last)
        elif isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value

    return spoil


def without(path: str) -> Spoil:
    def spoil(document: dict[str, Any]) -> None:
        *way, last = path.split(".")
        place: Any = document
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        del place[last]

    return spoil


WRONG: dict[str, tuple[Spoil, str]] = {
    "a kind of articles": (at("kind", "IndexedJob"), "kind"),
    "a Job of an old version": (at("apiVersion", "batch/v1beta1"), "apiVersion"),
    "a typo in a field": (at("spec.parallelism", 0, name="paralelism"), "spec.paralelism"),
    "a typo in a deep field": (
        at(f"{BOX}resources", 0, name="resource"),
        f"{BOX}resource",
    ),
    "a typo in a mount": (
        at(f"{BOX}volumeMounts.0.mountPath", 0, name="mountpath"),
        f"{BOX}volumeMounts.0.mountpath",
    ),
    "a number as text": (at("spec.completions", "8"), "spec.completions"),
    "a limit as text": (at("spec.backoffLimitPerIndex", "6"), "spec.backoffLimitPerIndex"),
    "a grace as text": (
        at(f"{POD}terminationGracePeriodSeconds", "30"),
        f"{POD}terminationGracePeriodSeconds",
    ),
    "a user as text": (
        at(f"{POD}securityContext.runAsUser", "10001"),
        f"{POD}securityContext.runAsUser",
    ),
    "a truth as text": (
        at(f"{BOX}securityContext.readOnlyRootFilesystem", "yes"),
        f"{BOX}securityContext.readOnlyRootFilesystem",
    ),
    "a variable as a number": (at(f"{BOX}env.2.value", 8), f"{BOX}env.2.value"),
    "no such mode": (at("spec.completionMode", "Indexd"), "spec.completionMode"),
    "a mode in lower case": (at("spec.completionMode", "indexed"), "spec.completionMode"),
    "no mode": (without("spec.completionMode"), "spec.backoffLimitPerIndex"),
    "a Job that restarts forever": (
        at(f"{POD}restartPolicy", "Always"),
        f"{POD}restartPolicy",
    ),
    "no restart policy": (without(f"{POD}restartPolicy"), f"{POD}restartPolicy"),
    "restarts inside the pod beside a failure policy": (
        at(f"{POD}restartPolicy", "OnFailure"),
        f"{POD}restartPolicy",
    ),
    "no such restart policy": (at(f"{POD}restartPolicy", "Nevr"), f"{POD}restartPolicy"),
    "an Indexed Job without indexes": (without("spec.completions"), "spec.completions"),
    "more pods than indexes": (at("spec.parallelism", 9), "spec.parallelism"),
    "fewer than no pods": (at("spec.parallelism", -1), "spec.parallelism"),
    "more failed indexes than indexes": (
        at("spec.maxFailedIndexes", 9),
        "spec.maxFailedIndexes",
    ),
    "failed indexes without a limit an index": (
        without("spec.backoffLimitPerIndex"),
        "spec.maxFailedIndexes",
    ),
    "no such replacement policy": (
        at("spec.podReplacementPolicy", "OnFailed"),
        "spec.podReplacementPolicy",
    ),
    "replacement beside a failure policy": (
        at("spec.podReplacementPolicy", "TerminatingOrFailed"),
        "spec.podReplacementPolicy",
    ),
    "no such action": (at(f"{RULES}0.action", "ignore"), f"{RULES}0.action"),
    "no such operator": (
        at(f"{RULES}1.onExitCodes.operator", "Is"),
        f"{RULES}1.onExitCodes.operator",
    ),
    "success as a failure": (
        at(f"{RULES}2.onExitCodes.values", [0, 2]),
        f"{RULES}2.onExitCodes.values",
    ),
    "codes of a container that is not there": (
        at(f"{RULES}1.onExitCodes.containerName", "worker"),
        f"{RULES}1.onExitCodes.containerName",
    ),
    "a rule of two minds": (
        at(f"{RULES}1.onPodConditions", [{"type": "DisruptionTarget", "status": "True"}]),
        f"{RULES}1.onExitCodes",
    ),
    "no such effect of a taint": (
        at(f"{POD}tolerations.0.effect", "NoRun"),
        f"{POD}tolerations.0.effect",
    ),
    "a value beside Exists": (
        at(f"{POD}tolerations.0.value", "true"),
        f"{POD}tolerations.0.value",
    ),
    "a weight over 100": (
        at(f"{NODES}preferredDuringSchedulingIgnoredDuringExecution.0.weight", 1000),
        f"{NODES}preferredDuringSchedulingIgnoredDuringExecution.0.weight",
    ),
    "an operator of another place": (
        at(
            f"{NODES}requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0"
            ".matchExpressions.0.operator",
            "Equal",
        ),
        f"{NODES}requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0"
        ".matchExpressions.0.operator",
    ),
    "half a GPU": (
        at(f"{BOX}resources.limits", {"nvidia.com/gpu": "0.5"}),
        f"{BOX}resources.limits.nvidia.com/gpu",
    ),
    "GPUs asked for and not limited": (
        at(f"{BOX}resources.limits", {"memory": "1Gi"}),
        f"{BOX}resources.limits.nvidia.com/gpu",
    ),
    "memory in no unit of Kubernetes": (
        at(f"{BOX}resources.limits.memory", "64GB"),
        f"{BOX}resources.limits.memory",
    ),
    "a mount of no volume": (
        at(f"{BOX}volumeMounts.2.name", "dshm"),
        f"{BOX}volumeMounts.2.name",
    ),
    "shared memory of no medium": (
        at(f"{POD}volumes.2.emptyDir.medium", "RAM"),
        f"{POD}volumes.2.emptyDir.medium",
    ),
    "root that must not be root": (
        at(f"{POD}securityContext.runAsUser", 0),
        f"{BOX}securityContext.runAsUser",
    ),
    "no image": (without(f"{BOX}image"), f"{BOX}image"),
    "no such pull policy": (at(f"{BOX}imagePullPolicy", "Sometimes"), f"{BOX}imagePullPolicy"),
    "a name with an underscore": (at("metadata.name", "my_job"), "metadata.name"),
    "no template": (without("spec.template"), "spec.template"),
}
CLUSTER = "spec.rayClusterSpec."
WRONG_RAY: dict[str, tuple[Spoil, str]] = {
    "no entry": (without("spec.entrypoint"), "spec.entrypoint"),
    "a typo": (at("spec.entrypoint", 0, name="entryPoint"), "spec.entryPoint"),
    "no such mode": (at("spec.submissionMode", "k8s"), "spec.submissionMode"),
    "a time as text": (
        at("spec.ttlSecondsAfterFinished", "60"),
        "spec.ttlSecondsAfterFinished",
    ),
    "a Ray parameter that is a number": (
        at(f"{CLUSTER}headGroupSpec.rayStartParams", {"num-cpus": 0}),
        f"{CLUSTER}headGroupSpec.rayStartParams.num-cpus",
    ),
    "fewer at most than at least": (
        at(f"{CLUSTER}workerGroupSpecs.0.maxReplicas", 1),
        f"{CLUSTER}workerGroupSpecs.0.replicas",
    ),
    "a typo in a pod": (
        at(f"{CLUSTER}workerGroupSpecs.0.template.spec.containers.0.image", 0, name="img"),
        f"{CLUSTER}workerGroupSpecs.0.template.spec.containers.0.img",
    ),
    "no head": (without(f"{CLUSTER}headGroupSpec"), f"{CLUSTER}headGroupSpec"),
    "a time without an end of the cluster": (
        without("spec.shutdownAfterJobFinishes"),
        "spec.ttlSecondsAfterFinished",
    ),
    "a Deployment's field": (at("spec.replicas", 3), "spec.replicas"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_job_is_refused_with_its_field_named(name: str) -> None:
    spoil, field = WRONG[name]
    document = copy.deepcopy(JOB)
    spoil(document)

    found = mistakes(document, "1.33")

    assert field in [line.partition(": ")[0] for line in found], found


@pytest.mark.parametrize("name", WRONG_RAY)
def test_a_wrong_ray_job_is_refused_with_its_field_named(name: str) -> None:
    spoil, field = WRONG_RAY[name]
    document = copy.deepcopy(RAY)
    spoil(document)

    found = mistakes(document, "1.33")

    assert field in [line.partition(": ")[0] for line in found], found


def test_what_is_right_has_no_mistakes() -> None:
    assert mistakes(JOB, "1.33") == []
    assert mistakes(RAY, "1.33") == []


def test_a_kind_of_no_cluster_is_a_mistake() -> None:
    """The library's own command only warns of it."""
    (found,) = mistakes({"apiVersion": "apps/v1", "kind": "Deploy", "metadata": {}}, "1.33")

    assert found.startswith("kind: Kubernetes 1.33 has no `Deploy`")


def test_check_names_every_mistake_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n"
        "  completionMode: Indexed\n  paralelism: 2\n  template:\n    spec:\n"
        "      restartPolicy: Always\n      containers: [{name: a, image: b}]\n"
    )

    code = main(["k8s", "check", str(file)], standalone_mode=False)

    told = capsys.readouterr().err
    assert code == 2
    assert "spec.paralelism: there is no such field; did you mean `parallelism`?" in told
    assert "spec.completions: an Indexed Job says how many indexes it has" in told
    assert "restartPolicy: `Always` is not for a Job" in told


@pytest.mark.parametrize("file", DEPLOYED, ids=lambda file: file.name)
def test_the_manifests_of_deploy_are_right(file: Path) -> None:
    documents = read_documents(str(file))

    assert documents
    for document in documents:
        assert is_foreign(document) or mistakes(document, "1.33") == []
