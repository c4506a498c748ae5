"""Job, needs -> the pod that works on it: a container that runs as nobody on a root it cannot write to.

Promises: nothing is written but to volumes of the pod; secrets come by reference; a node is asked for by labels that
are in the job file, and taints of spot nodes alone are tolerated.
Knows nothing of: who starts pods, how many.
Source: names of labels and taints as GKE, EKS, AKS and Karpenter document them; HAMi's resources as its README does.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from rowmill.config import Job
from rowmill.kubernetes.needs import Needs

if TYPE_CHECKING:
    from lightkube.models import core_v1

CONTAINER = "rowmill"
JOB_FOLDER = "/etc/rowmill"
JOB_FILE = f"{JOB_FOLDER}/job.toml"
SCRATCH, MODELS, MODEL_STORE = "/scratch", "/models", "/model-store"
GPU = "nvidia.com/gpu"
SPOT_LABELS = (
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
    ("karpenter.sh/capacity-type", "spot"),
)
"""A spot node has one of these."""
SPOT_TAINTS = (SPOT_LABELS[0], SPOT_LABELS[2], SPOT_LABELS[3])
MODEL_COPY = (
    "set -eu; from={store}; to={models};"
    ' if [ -e "$to" ]; then exit 0; fi; mkdir -p "$(dirname "$to")";'
    ' rm -rf "$to.part"; cp -rL "$from" "$to.part"; mv "$to.part" "$to"'
)
"""Whole or not at all: a container that is started again in its pod goes on with what is there."""


def pod_template(job: Job, needs: Needs, *, name: str) -> core_v1.PodTemplateSpec:
    """The pod of one worker.

    Args:
        name: of the ConfigMap with the job file; also what pods are labelled with.
    """
    from lightkube.models import core_v1, meta_v1

    asked = job.kubernetes
    return core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(labels=labels(name)),
        spec=core_v1.PodSpec(
            restartPolicy="Never",
            terminationGracePeriodSeconds=needs.grace_s,
            automountServiceAccountToken=bool(asked.service_account),
            serviceAccountName=asked.service_account or None,
            priorityClassName=asked.priority_class or None,
            imagePullSecrets=[core_v1.LocalObjectReference(name=asked.image_pull_secret)]
            if asked.image_pull_secret
            else None,
            enableServiceLinks=False,
            securityContext=core_v1.PodSecurityContext(
                runAsNonRoot=True,
                runAsUser=asked.user,
                runAsGroup=asked.user,
                fsGroup=asked.user,
                fsGroupChangePolicy="OnRootMismatch",
                seccompProfile=core_v1.SeccompProfile(type="RuntimeDefault"),
            ),
            nodeSelector=dict(asked.node_selector) or None,
            affinity=_affinity(job),
            tolerations=_tolerations(job, needs),
            initContainers=_model_copier(job),
            containers=[_worker(job, needs)],
            volumes=_volumes(job, needs, name=name),
        ),
    )


def labels(name: str) -> dict[str, str]:
    """What everything of one job is labelled with."""
    return {"app.kubernetes.io/name": "rowmill", "app.kubernetes.io/instance": name}


def _worker(job: Job, needs: Needs) -> core_v1.Container:
    from lightkube.models import core_v1

    asked = job.kubernetes
    return core_v1.Container(
        name=CONTAINER,
        image=asked.image,
        command=["rowmill"],
        args=["worker", JOB_FILE],
        env=_environment(job),
        resources=_resources(job, needs),
        volumeMounts=[
            core_v1.VolumeMount(name="job", mountPath=JOB_FOLDER, readOnly=True),
            core_v1.VolumeMount(name="scratch", mountPath=SCRATCH),
            core_v1.VolumeMount(name="shm", mountPath="/dev/shm"),
            *_model_mounts(job),
            *(
                core_v1.VolumeMount(name=f"claim-{number}", mountPath=path)
                for number, path in enumerate(asked.claims)
            ),
        ],
        workingDir=SCRATCH,
        securityContext=_closed(),
        # The last words of a worker that died are why it did.
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _closed() -> core_v1.SecurityContext:
    from lightkube.models import core_v1

    return core_v1.SecurityContext(
        allowPrivilegeEscalation=False,
        readOnlyRootFilesystem=True,
        capabilities=core_v1.Capabilities(drop=["ALL"]),
    )


def _environment(job: Job) -> list[core_v1.EnvVar]:
    from lightkube.models import core_v1

    def field(name: str, path: str) -> core_v1.EnvVar:
        source = core_v1.EnvVarSource(fieldRef=core_v1.ObjectFieldSelector(fieldPath=path))
        return core_v1.EnvVar(name=name, valueFrom=source)

    def secret(name: str, reference: str) -> core_v1.EnvVar:
        whose, _, key = reference.partition("/")
        source = core_v1.EnvVarSource(
            secretKeyRef=core_v1.SecretKeySelector(name=whose, key=key)
        )
        return core_v1.EnvVar(name=name, valueFrom=source)

    asked = job.kubernetes
    plain = {
        "ROWMILL_WORKERS": str(asked.workers),
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "HF_HOME": f"{SCRATCH}/huggingface",
        **asked.environment,
    }
    return [
        # One Job's pods own the output together; the next Job is another.
        field("ROWMILL_TOKEN", "metadata.labels['batch.kubernetes.io/controller-uid']"),
        field("ROWMILL_WORKER", "metadata.name"),
        *(core_v1.EnvVar(name=name, value=value) for name, value in plain.items()),
        *(secret(name, reference) for name, reference in asked.secrets.items()),
    ]


def _resources(job: Job, needs: Needs) -> core_v1.ResourceRequirements:
    from lightkube.models import core_v1

    gpus = gpu_resources(job, needs)
    memory = f"{round(needs.memory_gib * 1024)}Mi"
    requests = {"cpu": f"{needs.cpu:g}", "memory": memory, **gpus}
    # Processors are not limited: a limit throttles the tokeniser in bursts while others idle.
    return core_v1.ResourceRequirements(requests=requests, limits={"memory": memory, **gpus})


def gpu_resources(job: Job, needs: Needs) -> dict[str, str]:
    """What of GPUs a pod asks for, by the names of the device plugin."""
    asked = job.kubernetes
    if not needs.gpus:
        return {}
    if asked.gpu_sharing == "mig" and not asked.gpu_resource:
        return {f"nvidia.com/mig-{asked.mig_profile}": str(needs.gpus)}
    found = {asked.gpu_resource or GPU: str(needs.gpus)}
    if asked.gpu_sharing == "hami":
        shares = {
            "nvidia.com/gpumem": asked.gpu_memory_mib,
            "nvidia.com/gpucores": asked.gpu_cores,
        }
        found |= {name: str(value) for name, value in shares.items() if value is not None}
    return found


def _affinity(job: Job) -> core_v1.Affinity | None:
    from lightkube.models import core_v1

    asked = job.kubernetes

    def term(key: str, *values: str) -> core_v1.NodeSelectorTerm:
        wanted = core_v1.NodeSelectorRequirement(key=key, operator="In", values=list(values))
        return core_v1.NodeSelectorTerm(matchExpressions=[wanted])

    def preferred(weight: int, key: str, value: str) -> core_v1.PreferredSchedulingTerm:
        return core_v1.PreferredSchedulingTerm(preference=term(key, value), weight=weight)

    # The first counts most; a spot node of a dearer GPU is not preferred to a cheaper GPU.
    soft = [
        preferred(max(10, 100 - 10 * place), asked.gpu_label, product)
        for place, product in enumerate(asked.prefer_gpus)
    ]
    if asked.spot == "prefer":
        soft += [preferred(9, key, value) for key, value in SPOT_LABELS]
    hard = [term(key, value) for key, value in SPOT_LABELS] if asked.spot == "only" else []
    if not (soft or hard):
        return None
    return core_v1.Affinity(
        nodeAffinity=core_v1.NodeAffinity(
            preferredDuringSchedulingIgnoredDuringExecution=soft or None,
            requiredDuringSchedulingIgnoredDuringExecution=core_v1.NodeSelector(
                nodeSelectorTerms=hard
            )
            if hard
            else None,
        )
    )


def _tolerations(job: Job, needs: Needs) -> list[core_v1.Toleration] | None:
    from lightkube.models import core_v1

    found: list[core_v1.Toleration] = []
    if needs.gpus:
        # Nodes with GPUs are kept free of other pods by this taint.
        found.append(core_v1.Toleration(key=GPU, operator="Exists", effect="NoSchedule"))
    if job.kubernetes.spot != "no":
        found += [
            core_v1.Toleration(key=key, operator="Equal", value=value, effect="NoSchedule")
            for key, value in SPOT_TAINTS
        ]
    return found or None


def _model_mounts(job: Job) -> list[core_v1.VolumeMount]:
    from lightkube.models import core_v1

    if not job.kubernetes.model_claim:
        return []
    return [core_v1.VolumeMount(name="models", mountPath=MODELS, readOnly=True)]


def _model_copier(job: Job) -> list[core_v1.Container] | None:
    """Who copies the model to the node: a disk of its own is read at GB/s by each start of an engine, a claim is not."""
    from lightkube.models import core_v1

    asked = job.kubernetes
    if not asked.model_claim:
        return None
    below = job.engine.model.removeprefix(MODELS)
    script = MODEL_COPY.format(
        store=shlex.quote(MODEL_STORE + below), models=shlex.quote(MODELS + below)
    )
    return [
        core_v1.Container(
            name="model",
            image=asked.image,
            command=["sh", "-c", script],
            resources=core_v1.ResourceRequirements(
                requests={"cpu": "1", "memory": "1Gi"}, limits={"memory": "1Gi"}
            ),
            volumeMounts=[
                core_v1.VolumeMount(name="model-store", mountPath=MODEL_STORE, readOnly=True),
                core_v1.VolumeMount(name="models", mountPath=MODELS),
            ],
            securityContext=_closed(),
        )
    ]


def _volumes(job: Job, needs: Needs, *, name: str) -> list[core_v1.Volume]:
    from lightkube.models import core_v1

    asked = job.kubernetes

    def room(volume: str, gib: float, **more: Any) -> core_v1.Volume:
        size = f"{round(gib * 1024)}Mi"
        empty = core_v1.EmptyDirVolumeSource(sizeLimit=size, **more)
        return core_v1.Volume(name=volume, emptyDir=empty)

    def claim(volume: str, whose: str, *, is_read_only: bool) -> core_v1.Volume:
        source = core_v1.PersistentVolumeClaimVolumeSource(
            claimName=whose, readOnly=is_read_only or None
        )
        return core_v1.Volume(name=volume, persistentVolumeClaim=source)

    found = [
        core_v1.Volume(name="job", configMap=core_v1.ConfigMapVolumeSource(name=name)),
        room("scratch", asked.scratch_gib),
        room("shm", needs.shm_gib, medium="Memory"),
    ]
    if asked.model_claim:
        found.append(claim("model-store", asked.model_claim, is_read_only=True))
        found.append(
            _local_ssd(asked.ssd_class, needs.model_gib)
            if asked.ssd_class
            else room("models", needs.model_gib)
        )
    return found + [
        claim(f"claim-{number}", whose, is_read_only=False)
        for number, whose in enumerate(asked.claims.values())
    ]


def _local_ssd(storage_class: str, gib: float) -> core_v1.Volume:
    from lightkube.models import core_v1

    spec = core_v1.PersistentVolumeClaimSpec(
        accessModes=["ReadWriteOnce"],
        storageClassName=storage_class,
        resources=core_v1.VolumeResourceRequirements(
            requests={"storage": f"{round(gib * 1024)}Mi"}
        ),
    )
    template = core_v1.PersistentVolumeClaimTemplate(spec=spec)
    return core_v1.Volume(
        name="models", ephemeral=core_v1.EphemeralVolumeSource(volumeClaimTemplate=template)
    )
