"""What a cluster tells of a job's pods is named as one trouble, with what helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rowmill.cli import main
from rowmill.kubernetes.diagnose import diagnose
from tests.kubernetes import samples

NODES = "0/9 nodes are available: "
TROUBLES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPU quota": (
        "gpu_quota",
        samples.event(
            "FailedCreate",
            'Error creating: pods "rowmill-reviews-3-" is forbidden: exceeded quota: gpus, requested:'
            " requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=8, limited: requests.nvidia.com/gpu=8",
        ),
    ),
    "memory quota": (
        "quota",
        samples.event(
            "FailedCreate",
            'Error creating: pods "a" is forbidden: exceeded quota: compute, requested: limits.memory=60Gi,'
            " used: limits.memory=200Gi, limited: limits.memory=256Gi",
        ),
    ),
    "the cloud's quota": (
        "cloud_quota",
        samples.event(
            "FailedScaleUp",
            "Node scale up in zones europe-west4-a associated with this pod failed: GCE quota exceeded.",
            "Pod",
            "rowmill-reviews-0-x7k2p",
        ),
    ),
    "no GPU free": (
        "no_free_gpu",
        samples.unschedulable(
            f"{NODES}9 Insufficient nvidia.com/gpu. preemption: 0/9 nodes are available: 9 No preemption victims found."
        ),
    ),
    "no such label": (
        "no_matching_node",
        samples.unschedulable(
            f"{NODES}9 node(s) didn't match Pod's node affinity/selector. preemption: 0/9 nodes are available."
        ),
    ),
    "a taint": (
        "tainted_nodes",
        samples.unschedulable(
            f"{NODES}9 node(s) had untolerated taint {{dedicated: serving}}."
        ),
    ),
    "a pod larger than nodes": (
        "pod_too_large",
        samples.unschedulable(f"{NODES}9 Insufficient memory."),
    ),
    "an unbound claim": (
        "no_volume",
        samples.unschedulable(
            f"{NODES}pod has unbound immediate PersistentVolumeClaims. not found"
        ),
    ),
    "no image": (
        "image_not_found",
        samples.waiting(
            "ErrImagePull",
            'rpc error: code = NotFound desc = failed to pull and unpack image "r.example/rowmill:1":'
            " r.example/rowmill:1: not found",
        ),
    ),
    "a private registry": (
        "image_denied",
        samples.waiting(
            "ErrImagePull",
            "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
        ),
    ),
    "a registry out of reach": (
        "image_pull",
        samples.waiting("ImagePullBackOff", 'Back-off pulling image "r.example/rowmill:1"'),
    ),
    "a secret that is not there": (
        "missing_secret",
        samples.waiting("CreateContainerConfigError", 'secret "store" not found'),
    ),
    "an image of root": (
        "image_wants_root",
        samples.waiting(
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root (pod: x, container: rowmill)",
        ),
    ),
    "an image without rowmill": (
        "not_a_worker_image",
        samples.ended(
            128,
            'exec: "rowmill": executable file not found in $PATH: unknown',
            "StartError",
        ),
    ),
    "killed for memory": ("oom_killed", samples.ended(137, "", "OOMKilled")),
    "a bus error": ("shm_too_small", samples.ended(135)),
    "NCCL without shared memory": (
        "shm_too_small",
        samples.ended(
            3,
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a (size 9637888)",
        ),
    ),
    "shared memory over its limit": (
        "shm_too_small",
        samples.evicted('Usage of EmptyDir volume "shm" exceeds the limit "16Gi". '),
    ),
    "scratch over its limit": (
        "scratch_full",
        samples.evicted('Usage of EmptyDir volume "scratch" exceeds the limit "20Gi". '),
    ),
    "a full node": (
        "node_disk_full",
        samples.evicted(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 1"
        ),
    ),
    "an engine older than the model": (
        "engine_too_old",
        samples.ended(
            3,
            "ValueError: The checkpoint you are trying to load has model type `qwen9` but"
            " Transformers does not recognize this architecture.",
        ),
    ),
    "a vLLM older than the model": (
        "engine_too_old",
        samples.ended(
            3,
            "ValueError: Model architectures ['Qwen9ForCausalLM'] are not supported for now.",
        ),
    ),
    "an old driver": (
        "driver_too_old",
        samples.ended(3, "RuntimeError: The NVIDIA driver on your system is too old"),
    ),
    "no GPU memory": (
        "gpu_out_of_memory",
        samples.ended(3, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
    ),
    "no GPU in the pod": (
        "no_gpu_in_pod",
        samples.ended(3, "RuntimeError: No CUDA GPUs are available"),
    ),
    "a gated model": (
        "model_denied",
        samples.ended(2, "GatedRepoError: 401 Client Error. Cannot access gated repo"),
    ),
    "a closed store": (
        "store_denied",
        samples.ended(3, "rowmill: `s3://b/r`: AccessDenied: Access Denied"),
    ),
    "a refused job": (
        "refused",
        samples.ended(2, "rowmill: job.toml: `prompt` names a column that is not there"),
    ),
    "stopped early": ("stopped_early", samples.ended(5, "stopped: 900 of 1,000 rows failed")),
    "pushed aside": (
        "preempted",
        samples.ended(143, "", disrupted="PreemptionByScheduler"),
    ),
    "a node that is gone": ("preempted", samples.ended(137, "", disrupted="DeletionByPodGC")),
    "indexes given up": (
        "indexes_given_up",
        samples.failed_job("FailedIndexes", "Job has failed indexes"),
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_is_named(name: str) -> None:
    expected, thing = TROUBLES[name]
    others = [] if thing["kind"] == "Job" else [samples.job()]
    pods = [samples.pod()] if thing["kind"] == "Event" else []

    found = diagnose([*others, *pods, thing])

    assert [one.name for one in found.findings] == [expected]


def test_running_pods_are_no_trouble() -> None:
    found = diagnose([samples.job(active=1), samples.pod(phase="Running")])

    assert found.findings == []
    assert found.pods == {"Running": 1}


def test_a_clean_drain_is_no_trouble() -> None:
    assert diagnose([samples.ended(143), samples.ended(0)]).findings == []


def test_an_event_of_a_pod_that_got_over_it_is_no_trouble() -> None:
    name = samples.pod(phase="Running")["metadata"]["name"]
    old = samples.event("FailedScheduling", "Insufficient nvidia.com/gpu", "Pod", name)

    assert diagnose([samples.pod(phase="Running"), old]).findings == []


def test_several_reasons_of_a_scheduler_are_told_each() -> None:
    thing = samples.unschedulable(
        f"{NODES}4 Insufficient nvidia.com/gpu, 5 node(s) didn't match Pod's node affinity/selector."
    )

    names = [one.name for one in diagnose([thing]).findings]

    assert sorted(names) == ["no_free_gpu", "no_matching_node"]


def test_what_blocks_comes_first_and_pods_are_named() -> None:
    lost = [samples.ended(143, disrupted="DeletionByPodGC") for _ in range(3)]
    found = diagnose([*lost, samples.waiting("ErrImagePull", "not found")])

    assert [one.name for one in found.findings] == ["image_not_found", "preempted"]
    assert found.findings[0].pods == ["rowmill-reviews-0-x7k2p"]


def test_a_recorded_list_is_read_and_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "objects.json"
    items = [samples.job(), samples.waiting("ErrImagePull", "not found")]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    code = main(["k8s", "diagnose", "job.toml", "--from", str(file)], standalone_mode=False)

    assert code == 5
    told = capsys.readouterr().out
    assert "image_not_found: there is no such image (rowmill-reviews-0-x7k2p)" in told
    assert "  do:   see that `kubernetes.image` is pushed" in told
