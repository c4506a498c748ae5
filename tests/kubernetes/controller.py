"""A small Job controller: an Indexed Job's pods are started, judged and replaced as its manifest says.

After the documentation of Kubernetes 1.33: indexes lowest first unless told otherwise, `parallelism` at a time; rules of
`podFailurePolicy` in order, the first that fits; `backoffLimitPerIndex` and `maxFailedIndexes`; with
`podReplacementPolicy: Failed` a pod is replaced once it has ended. What is scaled away counts against nobody.
Waiting between restarts of an index is left out.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.kubernetes.node import Node, Pod


class Controller:
    """One Job, from its creation to its end."""

    def __init__(self, job: Mapping[str, Any], node: Node, order: Sequence[int] = ()) -> None:
        """Take charge of a Job.

        Args:
            order: in which indexes are started.
        """
        self.spec, self.node = job["spec"], node
        assert self.spec["completionMode"] == "Indexed"
        assert self.spec["podReplacementPolicy"] == "Failed"
        assert self.spec["template"]["spec"]["restartPolicy"] == "Never"
        self.name, self.uid = job["metadata"]["name"], secrets.token_hex(8)
        self.parallelism = int(self.spec["parallelism"])
        self.order = list(order) or list(range(self.spec["completions"]))
        self.succeeded: set[int] = set()
        self.failed: set[int] = set()
        self.failures: Counter[int] = Counter()
        self.ended: list[tuple[Pod, str]] = []
        """Pods that are gone, and what was made of their ends."""
        self.failed_by = ""
        """Why the Job as a whole failed, if it did."""

    @property
    def grace_s(self) -> float:
        return float(self.spec["template"]["spec"]["terminationGracePeriodSeconds"])

    @property
    def is_over(self) -> bool:
        done = len(self.succeeded | self.failed) == self.spec["completions"]
        return (done or bool(self.failed_by)) and not self.node.pods

    def step(self) -> None:
        """Judge what ended, start what is missing, end what is too much."""
        for pod in self.node.look():
            self.ended.append((pod, self._judge(pod)))
        if self.failed_by:
            for pod in self.node.pods:
                self.node.term(pod, self.grace_s)
            return
        active = [pod for pod in self.node.pods if not pod.is_deleted]
        for pod in active[self.parallelism :]:
            pod.is_deleted = True
            self.node.term(pod, self.grace_s)
        held = {pod.index for pod in self.node.pods} | self.succeeded | self.failed
        for index in [index for index in self.order if index not in held]:
            # Deleted pods count until they are gone.
            if len(self.node.pods) >= self.parallelism:
                break
            self.start(index)

    def start(self, index: int) -> Pod:
        """Start a pod of an index, whoever else has it."""
        template = self.spec["template"]
        labels = {
            **template["metadata"]["labels"],
            "batch.kubernetes.io/controller-uid": self.uid,
            "batch.kubernetes.io/job-name": self.name,
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        name = f"{self.name}-{index}-{secrets.token_hex(3)}"
        return self.node.start(template, name=name, index=index, labels=labels)

    def preempt(self, pod: Pod, grace_s: float | None = None) -> None:
        """The node is wanted back: a notice, and the end after it."""
        pod.is_disrupted = True
        self.node.term(pod, self.grace_s if grace_s is None else grace_s)

    def lose(self, pod: Pod) -> None:
        """The node is gone without a word."""
        pod.is_disrupted = True
        self.node.kill(pod)

    def run(self, until: Callable[[], bool], pause: Callable[[], None]) -> None:
        """Step until then."""
        while not until():
            self.step()
            pause()

    def _judge(self, pod: Pod) -> str:
        if pod.is_deleted:
            return "Deleted"
        if pod.exit_code == 0:
            self.succeeded.add(pod.index)
            return "Succeeded"
        if pod.index in self.succeeded:
            return "Late"
        action = self._action(pod)
        self.failures[pod.index] += action == "Count"
        if action == "FailJob":
            self.failed_by = f"{pod.name} ended with {pod.exit_code}"
        if action == "FailIndex" or (
            self.failures[pod.index] > self.spec["backoffLimitPerIndex"]
        ):
            self.failed.add(pod.index)
        if len(self.failed) > self.spec["maxFailedIndexes"]:
            self.failed_by = "maxFailedIndexes"
        return action

    def _action(self, pod: Pod) -> str:
        for rule in self.spec["podFailurePolicy"]["rules"]:
            codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
            if codes is not None:
                is_in = pod.exit_code in codes["values"]
                fits = is_in if codes["operator"] == "In" else not is_in
            else:
                types = [c["type"] for c in conditions if c["status"] == "True"]
                fits = pod.is_disrupted and "DisruptionTarget" in types
            if fits:
                return str(rule["action"])
        return "Count"
