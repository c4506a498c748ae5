"""Words of schedulers, kubelets and engines -> the trouble they tell of, and what helps.

Promises: each text is looked up in one table, most telling first; a text that fits nothing is no trouble.
Knows nothing of: objects of a cluster.
Source: messages of Kubernetes 1.33 (scheduler, kubelet, quota admission), containerd, the autoscalers of GKE and
Karpenter, vLLM 0.25, transformers 5, NCCL 2.27.
"""

from __future__ import annotations

import re

import msgspec


class Trouble(msgspec.Struct, frozen=True):
    """A kind of trouble."""

    name: str
    meaning: str
    remedy: str


GPU_QUOTA = Trouble(
    "gpu_quota",
    "the quota of the namespace has no GPUs left for this pod",
    "lower `kubernetes.parallelism`, wait for other jobs, or have the ResourceQuota raised",
)
QUOTA = Trouble(
    "quota",
    "a quota of the namespace is used up",
    "lower `kubernetes.cpu`, `memory_gib` or `parallelism`, or have the ResourceQuota raised",
)
CLOUD_QUOTA = Trouble(
    "cloud_quota",
    "the cloud gives no more nodes of this kind: its quota is used up, or it has none left",
    "name other GPUs in `kubernetes.prefer_gpus`, allow spot nodes, or have the cloud's quota raised",
)
NO_FREE_GPU = Trouble(
    "no_free_gpu",
    "no node has so many GPUs free",
    "wait, lower `kubernetes.gpus`, or see that the cluster grows (`kubectl describe node` tells what is taken)",
)
NO_MATCHING_NODE = Trouble(
    "no_matching_node",
    "no node has the labels that are asked for",
    "compare `kubernetes.node_selector` and `spot` with `kubectl get nodes --show-labels`",
)
TAINTED = Trouble(
    "tainted_nodes",
    "the nodes that would do are kept for others by a taint",
    "set `kubernetes.spot` where it is a spot node's, else name a pool of nodes in `kubernetes.node_selector`",
)
TOO_LARGE = Trouble(
    "pod_too_large",
    "no node has so much memory or so many processors free",
    "lower `kubernetes.memory_gib` or `kubernetes.cpu`, or take larger nodes",
)
NO_VOLUME = Trouble(
    "no_volume",
    "a volume claim is not there, not bound, or cannot be mounted where the pod runs",
    "see `kubectl describe pvc`; a claim that many pods share is `ReadOnlyMany` or `ReadWriteMany`",
)
NO_IMAGE = Trouble(
    "image_not_found",
    "there is no such image",
    "see that `kubernetes.image` is pushed, tag and all",
)
IMAGE_DENIED = Trouble(
    "image_denied",
    "the registry does not let the node have the image",
    "name a Secret of type `kubernetes.io/dockerconfigjson` in `kubernetes.image_pull_secret`",
)
IMAGE_UNREACHABLE = Trouble(
    "image_pull",
    "the image cannot be pulled",
    "see that nodes reach the registry, and that the image is built for their processors",
)
NO_ROOT = Trouble(
    "image_wants_root",
    "the image says that it runs as root, which the pod forbids",
    "build it with `USER 10001`, as `deploy/kubernetes/Dockerfile` does",
)
NO_SECRET = Trouble(
    "missing_secret",
    "a Secret or ConfigMap that the pod refers to is not there, or lacks the key",
    "make it with `kubectl create secret generic NAME --from-literal=KEY=...`, or correct `kubernetes.secrets`",
)
NO_PROGRAM = Trouble(
    "not_a_worker_image",
    "the image has no `rowmill`",
    "build `deploy/kubernetes/Dockerfile`, or install rowmill in yours",
)
OUT_OF_MEMORY = Trouble(
    "oom_killed",
    "the pod used more memory than it may, and was killed",
    "raise `kubernetes.memory_gib`; /dev/shm counts to it",
)
GPU_MEMORY = Trouble(
    "gpu_out_of_memory",
    "the engine ran out of GPU memory",
    "lower `engine.seats` or `engine.gpu_memory_utilization`, or take a larger GPU",
)
SHM = Trouble(
    "shm_too_small",
    "/dev/shm is full",
    "raise `kubernetes.shm_gib`; engines that split a model over GPUs share tensors through it",
)
SCRATCH_FULL = Trouble(
    "scratch_full",
    "the pod's room on the node is full",
    "raise `kubernetes.scratch_gib` (`model_gib` for the model)",
)
NODE_DISK = Trouble(
    "node_disk_full",
    "the node's disk is full",
    "take nodes with larger disks, or `kubernetes.ssd_class` for the model",
)
TOO_OLD = Trouble(
    "engine_too_old",
    "the engine in the image does not know this model's architecture",
    "build the image with a newer vLLM (and transformers); the model's page says which version it needs",
)
DRIVER = Trouble(
    "driver_too_old",
    "the node's driver is older than what the engine is built for",
    "take nodes with a newer driver, or an image for an older CUDA",
)
NO_GPU = Trouble(
    "no_gpu_in_pod",
    "the engine finds no GPU in the pod",
    "see that `kubernetes.gpus` is not 0 and that the cluster's device plugin runs",
)
NO_ACCESS = Trouble(
    "store_denied",
    "the object store does not let the pod in",
    "correct `kubernetes.secrets` or the rights of `kubernetes.service_account`",
)
GATED_MODEL = Trouble(
    "model_denied",
    "the model cannot be had: it is gated, or its name is wrong",
    "accept its terms and set `kubernetes.secrets.HF_TOKEN`, or put it into a claim (`model_claim`)",
)

SCHEDULING = (
    (r"exceeded quota.*(nvidia\.com|amd\.com|gpu)", GPU_QUOTA),
    (r"exceeded quota", QUOTA),
    (
        r"(quota|ZONE_RESOURCE_POOL_EXHAUSTED|InsufficientInstanceCapacity|out of resources|OutOfStock)",
        CLOUD_QUOTA,
    ),
    (r"Insufficient \S*gpu|Insufficient nvidia\.com/|CardInsufficientMemory", NO_FREE_GPU),
    (
        r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim \S+ not found|volume node affinity",
        NO_VOLUME,
    ),
    (r"didn't match Pod's node affinity/selector|didn't match node selector", NO_MATCHING_NODE),
    (r"Insufficient (memory|cpu|ephemeral-storage)", TOO_LARGE),
    (r"untolerated taint", TAINTED),
)
"""What schedulers, autoscalers and admission say."""
PULLING = (
    (r"unauthorized|authentication required|denied|403 Forbidden", IMAGE_DENIED),
    (r"not found|manifest unknown|InvalidImageName|couldn't parse image", NO_IMAGE),
    (r"", IMAGE_UNREACHABLE),
)
STARTING = (
    (r"runAsNonRoot|will run as root|non-numeric user", NO_ROOT),
    (r"(secret|configmap) \S+ not found|couldn't find key", NO_SECRET),
    (r"executable file not found|no such file or directory", NO_PROGRAM),
    (
        r"MountVolume|AttachVolume|FailedMount|Multi-Attach|timed out waiting for the condition",
        NO_VOLUME,
    ),
)
EVICTED = (
    (r'EmptyDir volume "shm"', SHM),
    (
        r"EmptyDir volume|exceeds? the (total )?limit|exceeded its local ephemeral storage",
        SCRATCH_FULL,
    ),
    (r"ephemeral-storage|DiskPressure", NODE_DISK),
    (r"low on resource: memory|MemoryPressure", OUT_OF_MEMORY),
)
SAID = (
    (
        r"(unsupported|not supported).{0,40}architecture|architectures? .{0,80}(not supported|failed to be inspected)",
        TOO_OLD,
    ),
    (
        r"does not recognize this architecture|has no vLLM implementation|unknown model architecture",
        TOO_OLD,
    ),
    (
        r"driver version is insufficient|driver on your system is too old|cudaErrorInsufficientDriver",
        DRIVER,
    ),
    (r"/dev/shm|shared memory segment|insufficient shared memory|Bus error", SHM),
    (
        r"CUDA out of memory|OutOfMemoryError|No available memory for the cache blocks",
        GPU_MEMORY,
    ),
    (
        r"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver|libcuda\.so",
        NO_GPU,
    ),
    (
        r"gated repo|401 Client Error|Repository Not Found|is not a valid model identifier",
        GATED_MODEL,
    ),
    (
        r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|PermissionDenied|403 Forbidden",
        NO_ACCESS,
    ),
    (r"No space left on device", SCRATCH_FULL),
)
"""What a container said last."""


def find(text: str, table: tuple[tuple[str, Trouble], ...]) -> Trouble | None:
    """The first trouble of a table that a text tells of."""
    for pattern, trouble in table:
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return trouble
    return None


def find_all(text: str, table: tuple[tuple[str, Trouble], ...]) -> list[Trouble]:
    """All of them: a scheduler says of each group of nodes why it will not do."""
    return [t for pattern, t in table if re.search(pattern, text, re.IGNORECASE)]
