"""`[kubernetes]`: which pods a job gets; read by `rowmill k8s` alone, no run changes by it.

Promises: secrets are named, never held.
Knows nothing of: manifests.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rowmill.part import Part

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""What Kubernetes takes for a name that becomes part of a host name."""
QUALIFIED = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
"""What it takes for the name of a resource or of a label."""


class KubernetesConfig(Part):
    """A table of the job file."""

    name: str = Field(default="", max_length=52)
    """Name of the Job, part of pods' names. Empty: made of the output's last name."""
    namespace: str = ""
    """Empty: the one that `kubectl` is set to."""
    image: str = ""
    """Image of the workers, with its tag or digest; `deploy/kubernetes/Dockerfile` makes one."""
    image_pull_secret: str = ""
    """Secret with the password of the image's registry."""
    workers: int = Field(default=1, ge=1, le=100_000)
    """Indexes of the Job: the most pods that ever work at once."""
    parallelism: int | None = Field(default=None, ge=0)
    """Pods at a time; may be changed while the Job runs, from 0 to `workers`. None: `workers`."""
    gpus: int | None = Field(default=None, ge=0)
    """GPUs a pod. None: what an engine's parallel settings come to; 0 for engines that use none."""
    gpu_sharing: Literal["none", "time_slices", "mig", "hami"] = "none"
    """A whole GPU; a slice of its time (device plugin of NVIDIA); a MIG part (`mig_profile`); or HAMi's share of its
    memory and cores (`gpu_memory_mib`, `gpu_cores`)."""
    mig_profile: str = Field(default="", pattern=r"^([1-7]g\.[0-9]+gb(\.me)?)?$")
    """As `1g.10gb`."""
    gpu_memory_mib: int | None = Field(default=None, gt=0)
    """HAMi: memory of the GPU that a pod gets."""
    gpu_cores: int | None = Field(default=None, gt=0, le=100)
    """HAMi: percent of the GPU's cores that a pod gets."""
    gpu_resource: str = Field(default="", pattern=f"{QUALIFIED}|^$")
    """Name of the GPU resource, where the cluster's differs. Empty: NVIDIA's by `gpu_sharing`."""
    prefer_gpus: tuple[str, ...] = ()
    """Products that nodes are labelled with (`nvidia.com/gpu.product`), the cheapest that will do first."""
    gpu_label: str = Field(default="nvidia.com/gpu.product", pattern=QUALIFIED)
    """Label of nodes that `prefer_gpus` is looked up in; on GKE `cloud.google.com/gke-accelerator`."""
    node_selector: dict[str, str] = Field(default={})
    """Labels that a node must have."""
    spot: Literal["no", "allow", "prefer", "only"] = "allow"
    """Whether pods may, should or must run on spot nodes of GKE, EKS, AKS and Karpenter."""
    cpu: float | None = Field(default=None, gt=0)
    """Processors a pod asks for. None: 8 to 16 for each GPU, by the engines on it; less without a GPU."""
    memory_gib: float | None = Field(default=None, gt=0)
    """Memory of a pod. None: twice that of its GPUs; without a GPU the model's and 4 GiB, and `shm_gib` in both cases."""
    shm_gib: float | None = Field(default=None, gt=0)
    """Size of /dev/shm. None: 16 for each pod with a GPU, else 1."""
    scratch_gib: float = Field(default=20.0, gt=0)
    """Room for what is kept on the node for the pod's life: temporary files, caches, engine logs."""
    model_claim: str = Field(default="", pattern=f"{NAME}|^$")
    """Volume claim that holds the model; what `engine.model` names below `/models` is copied from it to the node first."""
    model_gib: float | None = Field(default=None, gt=0)
    """Room for the model on the node. None: its size and a fifth, where it is known here, else 200."""
    ssd_class: str = ""
    """Storage class of local SSDs, where the copy goes. Empty: the node's own disk, which on nodes with local SSDs for
    pods' files is one of those."""
    claims: dict[str, str] = Field(default={})
    """Path -> volume claim mounted there, for inputs and outputs that do not lie in an object store."""
    secrets: dict[str, str] = Field(default={})
    """Variable -> `SECRET/KEY` that it is set from: what `env:NAME` in the job stands for, and keys of object stores."""
    environment: dict[str, str] = Field(default={})
    """Variables that hold no secret, as `AWS_REGION`."""
    service_account: str = ""
    """Identity of the pods, where the cloud gives rights to one."""
    priority_class: str = Field(default="", pattern=f"{NAME}|^$")
    """PriorityClass of the pods; with `priority` it is rendered, else it must be there."""
    priority: int | None = Field(default=None, ge=-2_147_483_648, le=1_000_000_000)
    """Value of the class: below that of whatever may push these pods aside."""
    queue: str = Field(default="", pattern=f"{NAME}|^$")
    """Queue of Kueue (LocalQueue) that admits the Job."""
    restarts: int = Field(default=6, ge=0)
    """Deaths of one index that count, before it is given up; disruptions and drains never count."""
    max_failed_workers: int | None = Field(default=None, ge=0)
    """Given-up indexes that fail the Job. None: none do; the others do the work of one that is given up."""
    keep_s: int = Field(default=7 * 86_400, ge=0)
    """Seconds that the Job stays after its end, to be looked at."""
    user: int = Field(default=10_001, gt=0)
    """User and group id that workers run as."""
    ray_version: str = Field(default="2.60.0", pattern=r"^\d+\.\d+\.\d+$")
    """For RayJobs: version of Ray in the image."""
    version: str = Field(default="1.33", pattern=r"^1\.\d+$")
    """Version of the cluster that manifests are checked against."""
    slurm: dict[str, str] = Field(default={})
    """Options of `sbatch` by their long names, as `partition`; for `--slurm`."""
