"""Pods as processes: what a kubelet makes of a pod template, on this machine.

Environment, arguments and working folder are those of the manifest; a path below a mount is where this node keeps that
mount; a container is all processes that carry its pod's mark, and dies as one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "ROWMILL_TEST_POD"
BIN = Path(sys.executable).parent


@dataclass
class Pod:
    """A pod and its one container."""

    name: str
    index: int
    process: subprocess.Popen[bytes]
    log: Path
    is_disrupted: bool = False
    """It has the condition `DisruptionTarget`."""
    is_deleted: bool = False
    """The controller itself did not want it any more."""
    kill_at: float | None = None
    """When its grace is over."""

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def exit_code(self) -> int:
        """As Kubernetes tells it: 128 and the signal."""
        code = self.process.returncode
        return code if code >= 0 else 128 - code


@dataclass
class Node:
    """Where pods run."""

    folder: Path
    objects: list[dict[str, Any]]
    """ConfigMaps among them are mounted."""
    secrets: Mapping[str, str]
    """`SECRET/KEY` -> value."""
    pods: list[Pod] = field(default_factory=list)

    def start(
        self, template: Mapping[str, Any], *, name: str, index: int, labels: Mapping[str, str]
    ) -> Pod:
        """Start a pod of the template."""
        place: Path = self.folder / name
        place.mkdir(parents=True)
        spec, (container,) = template["spec"], template["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = {
            mount["mountPath"]: self._mounted(volumes[mount["name"]], place)
            for mount in container["volumeMounts"]
        }
        environment = {
            one["name"]: _placed(self._value(one, name, labels), mounts)
            for one in container["env"]
        }
        command = [*container["command"], *(_placed(arg, mounts) for arg in container["args"])]
        log = place / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=_placed(container["workingDir"], mounts),
                env={
                    "PATH": f"{BIN}:/usr/bin:/bin",
                    "PYTHONPATH": os.environ["PYTHONPATH"],
                    **environment,
                    "JOB_COMPLETION_INDEX": str(index),
                    MARK: name,
                },
                start_new_session=True,
            )
        pod = Pod(name, index, process, log)
        self.pods.append(pod)
        return pod

    def term(self, pod: Pod, grace_s: float) -> None:
        """What a kubelet does where a pod is to go."""
        if not pod.is_over and pod.kill_at is None:
            pod.process.send_signal(signal.SIGTERM)
            pod.kill_at = time.monotonic() + grace_s

    def kill(self, pod: Pod) -> None:
        """All of the container at once."""
        pids = [pod.process.pid] if pod.process.returncode is None else []
        for pid in [*pids, *marked(pod.name)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        pod.process.wait()

    def freeze(self, pod: Pod, *, is_frozen: bool) -> None:
        """Stop or wake all of the container."""
        for pid in marked(pod.name):
            try:
                os.kill(pid, signal.SIGSTOP if is_frozen else signal.SIGCONT)
            except ProcessLookupError:
                continue

    def look(self) -> list[Pod]:
        """Kill whose grace is over; the pods that ended since the last look, nothing of them left."""
        for pod in self.pods:
            if pod.kill_at is not None and time.monotonic() > pod.kill_at and not pod.is_over:
                self.kill(pod)
        ended = [pod for pod in self.pods if pod.is_over]
        for pod in ended:
            # With its first process a container ends.
            self.kill(pod)
            self.pods.remove(pod)
        return ended

    def close(self) -> None:
        """End everything."""
        for pod in self.pods:
            self.kill(pod)

    def _mounted(self, volume: Mapping[str, Any], place: Path) -> Path:
        folder: Path = place / "volumes" / volume["name"]
        folder.mkdir(parents=True)
        if "configMap" in volume:
            wanted = volume["configMap"]["name"]
            (found,) = (
                one
                for one in self.objects
                if one["kind"] == "ConfigMap" and one["metadata"]["name"] == wanted
            )
            for file, text in found["data"].items():
                (folder / file).write_text(text, "utf-8")
        return folder

    def _value(self, one: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> str:
        if "value" in one:
            return str(one["value"])
        source = one["valueFrom"]
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return self.secrets[f"{reference['name']}/{reference['key']}"]
        path = source["fieldRef"]["fieldPath"]
        if path == "metadata.name":
            return name
        assert path.startswith("metadata.labels['"), path
        return labels[path.removeprefix("metadata.labels['").removesuffix("']")]


def _placed(text: str, mounts: Mapping[str, Path]) -> str:
    for path, folder in mounts.items():
        if text == path or text.startswith(f"{path}/"):
            return str(folder) + text[len(path) :]
    return text


def marked(name: str) -> list[int]:
    """Living processes of a pod."""
    wanted = f"{MARK}={name}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if wanted in entry.joinpath("environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
