"""Objects of a cluster, as `kubectl get -o json` tells them -> what keeps a job from going on, and what helps.

Promises: the same objects, the same findings; what stops all pods comes first; nothing is asked of a cluster.
Knows nothing of: how objects are got.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rowmill.kubernetes import troubles as known
from rowmill.kubernetes.troubles import Trouble, find, find_all

Thing = Mapping[str, Any]
MAX_SHOWN = 240
SIGBUS, SIGKILL = 135, 137
PULL_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
START_REASONS = (
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    *("StartError", "ContainerCannotRun"),
)
EVENT_REASONS = (
    *("FailedCreate", "FailedScheduling", "FailedScaleUp", "NotTriggerScaleUp"),
    *("FailedMount", "FailedAttachVolume"),
)
DISRUPTIONS = {
    "PreemptionByScheduler": "pushed aside by pods of a higher priority",
    "DeletionByTaintManager": "their node was tainted: a spot node that goes, or one that does not answer",
    "EvictionByEvictionAPI": "their node is being drained",
    "DeletionByPodGC": "their node is gone",
    "TerminationByKubelet": "their node shuts down, or ran short of something",
}
PREEMPTED = Trouble(
    "preempted",
    "pods were disrupted; that counts against nobody, and they are replaced",
    "nothing to do; where it is often, set `kubernetes.priority` higher, or `kubernetes.spot` to `no`",
)
QUEUED = Trouble(
    "queued",
    "the Job is suspended",
    "it waits for its queue: `kubectl get workloads` tells its place; without one, set `.spec.suspend` to false",
)
EXITS = {
    2: Trouble("refused", "rowmill refused the job", "mend what it names, and submit again"),
    3: Trouble(
        "died", "the engine or the store failed; the index is started again", "see what it says"
    ),
    5: Trouble(
        "stopped_early",
        "nearly all rows failed, or a cap was reached",
        "`rowmill status OUT` tells of what; submit again to go on",
    ),
    70: Trouble("bug", "a bug of rowmill", "report it with the log of the pod"),
}
JOB_FAILED = {
    "MaxFailedIndexesExceeded": Trouble(
        "indexes_given_up",
        "too many indexes died too often",
        "see why below; what is committed is kept, submit again to go on",
    ),
    "FailedIndexes": Trouble(
        "indexes_given_up",
        "some indexes died too often; others may have done their tasks",
        "`rowmill status OUT` tells whether rows are left; then submit again",
    ),
    "DeadlineExceeded": Trouble("deadline", "the Job's time is over", "submit again to go on"),
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of trouble, and who has it."""

    name: str
    meaning: str
    remedy: str
    pods: list[str]
    """Names; empty where it is the Job's."""
    told: str
    """In the cluster's own words, the last of them."""
    is_blocking: bool
    """Whether what has it cannot go on by itself."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    job: str
    pods: dict[str, int]
    """Number of pods by phase."""
    findings: list[Finding]

    def lines(self) -> Iterator[str]:
        """For people."""
        counts = ", ".join(f"{number} {phase}" for phase, number in sorted(self.pods.items()))
        yield f"{self.job or 'job'}: {counts or 'no pods'}"
        if not self.findings:
            yield "nothing is wrong as far as the cluster tells; `rowmill k8s logs` has what pods say"
        for one in self.findings:
            yield f"{one.name}: {one.meaning}{_who(one.pods)}"
            if one.told:
                yield f"  told: {one.told}"
            yield f"  do:   {one.remedy}"


Found = tuple[Trouble, str, str, bool]
"""A trouble, the pod that has it, the cluster's words, whether it blocks."""


def diagnose(objects: Iterable[Thing]) -> Diagnosis:
    """Tell what is wrong with a Job and its pods."""
    every = [one for thing in objects for one in _flat(thing)]
    jobs = [one for one in every if one.get("kind") in ("Job", "RayJob")]
    pods = [one for one in every if one.get("kind") == "Pod"]
    found = [f for job in jobs for f in _of_job(job)]
    found += [f for pod in pods for f in _of_pod(pod)]
    found += [f for one in every if one.get("kind") == "Event" for f in _of_event(one, pods)]
    return Diagnosis(
        job=_name(jobs[0]) if jobs else "",
        pods=dict(Counter(str(_at(pod, "status", "phase") or "Pending") for pod in pods)),
        findings=_gathered(found),
    )


def _flat(thing: Thing) -> Iterator[Thing]:
    if str(thing.get("kind", "")).endswith("List"):
        for item in thing.get("items") or ():
            yield from _flat(item)
    else:
        yield thing


def _gathered(found: Sequence[Found]) -> list[Finding]:
    by_name: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        by_name[one[0].name].append(one)
    findings = [
        Finding(
            name=name,
            meaning=group[-1][0].meaning,
            remedy=group[-1][0].remedy,
            pods=sorted({pod for _, pod, _, _ in group if pod}),
            told=_short(group[-1][2]),
            is_blocking=any(blocks for _, _, _, blocks in group),
        )
        for name, group in by_name.items()
    ]
    return sorted(findings, key=lambda one: (not one.is_blocking, -len(one.pods), one.name))


def _of_job(job: Thing) -> Iterator[Found]:
    if _at(job, "spec", "suspend"):
        yield QUEUED, "", "", True
    for condition in _at(job, "status", "conditions") or ():
        if (
            condition.get("type") in ("Failed", "FailureTarget")
            and condition.get("status") == "True"
        ):
            trouble = JOB_FAILED.get(condition.get("reason", ""))
            if trouble is not None:
                yield trouble, "", condition.get("message", ""), True


def _of_pod(pod: Thing) -> Iterator[Found]:
    name, status = _name(pod), pod.get("status") or {}
    is_disrupted = False
    for condition in status.get("conditions") or ():
        kind, text = condition.get("type"), condition.get("message", "")
        if kind == "PodScheduled" and condition.get("reason") == "Unschedulable":
            found = find_all(text, known.SCHEDULING)
            yield from ((trouble, name, text, True) for trouble in found)
        if kind == "DisruptionTarget" and condition.get("status") == "True":
            is_disrupted = True
            reason = condition.get("reason", "")
            yield PREEMPTED, name, DISRUPTIONS.get(reason, text or reason), False
    evicted = status.get("message", "") if status.get("reason") == "Evicted" else ""
    trouble = find(evicted, known.EVICTED)
    if trouble is not None:
        yield trouble, name, evicted, False
    for group in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(group) or ():
            yield from _of_container(container, name, is_disrupted=is_disrupted)


def _of_container(container: Thing, pod: str, *, is_disrupted: bool) -> Iterator[Found]:
    waiting = _at(container, "state", "waiting")
    if waiting:
        reason, text = waiting.get("reason", ""), waiting.get("message", "")
        if reason in PULL_REASONS:
            trouble = find(f"{reason} {text}", known.PULLING)
            yield trouble or known.IMAGE_UNREACHABLE, pod, text, True
        elif reason in START_REASONS:
            trouble = find(text, known.STARTING)
            if trouble is not None:
                yield trouble, pod, text, True
    for state in ("state", "lastState"):
        ended = _at(container, state, "terminated")
        if ended and ended.get("exitCode") and not is_disrupted:
            yield from _of_end(ended, pod)


def _of_end(ended: Thing, pod: str) -> Iterator[Found]:
    """What a container died of: what the kubelet knows, then what it said, then its code."""
    code, text = ended.get("exitCode"), str(ended.get("message") or "")
    if ended.get("reason") == "OOMKilled":
        yield known.OUT_OF_MEMORY, pod, "OOMKilled", False
        return
    if code == SIGBUS:
        yield known.SHM, pod, text or "killed by SIGBUS", False
        return
    trouble = find(text, known.SAID)
    if trouble is None and ended.get("reason") in START_REASONS:
        trouble = find(text, known.STARTING)
    trouble = trouble or EXITS.get(code if isinstance(code, int) else 0)
    if trouble is not None:
        yield trouble, pod, _last_line(text), code in (2, 5)


def _of_event(event: Thing, pods: Sequence[Thing]) -> Iterator[Found]:
    reason, text = event.get("reason", ""), str(event.get("message") or event.get("note") or "")
    if reason not in EVENT_REASONS:
        return
    whose = _at(event, "involvedObject") or _at(event, "regarding") or {}
    is_pod = whose.get("kind") == "Pod"
    pod = str(whose.get("name", "")) if is_pod else ""
    waiting = {_name(p) for p in pods if _at(p, "status", "phase") in (None, "Pending")}
    if is_pod and pod not in waiting:
        return  # of a pod that got over it, or is gone
    table = known.STARTING if "Mount" in reason or "Volume" in reason else known.SCHEDULING
    trouble = find(f"{reason} {text}", table)
    if trouble is not None:
        yield trouble, pod, text, True


def _who(pods: Sequence[str]) -> str:
    if len(pods) < 2:
        return f" ({pods[0]})" if pods else ""
    return f" ({len(pods)} pods: {pods[0]}, ...)"


def _name(thing: Thing) -> str:
    return str(_at(thing, "metadata", "name") or "")


def _at(thing: Any, *names: str) -> Any:
    for name in names:
        thing = thing.get(name) if isinstance(thing, Mapping) else None
    return thing


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= MAX_SHOWN else f"{plain[:MAX_SHOWN]}..."
