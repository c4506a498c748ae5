"""A job's `[ray]` table -> a connection to a cluster, and what one worker needs of it.

Promises: Ray tells nobody of its use, starts no dashboard, and puts no words of its own between ours;
handlers of signals stay ours; a cluster that was started here ends here, one that was there stays.
Knows nothing of: runs, tasks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from rowmill.config import Job
from rowmill.engines import resolve
from rowmill.errors import ConfigError, MissingExtra
from rowmill.executors.ray.policy import room

REACH_S = 10.0
GPU_ENGINES = frozenset({"vllm", "sglang"})


def load_ray() -> ModuleType:
    """Ray.

    Raises:
        MissingExtra: it is not installed.
    """
    # Read by Ray when it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra(what="Ray (`ray`)", extra="ray") from error
    return ray


@contextlib.contextmanager
def connected(job: Job) -> Iterator[ModuleType]:
    """Ray, connected to the job's cluster; a connection that the program has already is used and left.

    Raises:
        ConfigError: no cluster answers there.
        MissingExtra: Ray is not installed.
    """
    ray = load_ray()
    if ray.is_initialized():
        yield ray
        return
    address = job.ray.address or os.environ.get("RAY_ADDRESS", "") or "local"
    if address.startswith("ray://"):
        reason = (
            f"`ray.address` = `{address}`: the process that watches workers also writes results, so it runs"
            " in the cluster itself; give the command on its head with `auto`, or through `ray job submit`"
        )
        raise ConfigError(reason=reason)
    with _own_signals():
        _init(ray, address)
    try:
        yield ray
    finally:
        with _own_signals():
            ray.shutdown()


def _init(ray: ModuleType, address: str) -> None:
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        _reach(address)
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="ERROR",
            configure_logging=True,
            **local,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        what = str(error).strip().splitlines()
        reason = (
            f"no Ray cluster at `ray.address` = `{address}` ({type(error).__name__}: {what[0] if what else ''});"
            " start one with `ray start --head`, name its `HOST:PORT`, or leave `ray.address` out for one"
            " of this machine"
        )
        raise ConfigError(reason=reason) from error


def _reach(address: str) -> None:
    """See that somebody listens at `HOST:PORT`: Ray itself waits for minutes."""
    host, colon, port = address.rpartition(":")
    if colon:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S):
            return


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts handlers of its own; ours come back."""
    try:
        old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            with contextlib.suppress(ValueError):  # not the main thread: nothing was changed
                signal.signal(number, handler)


def needs(job: Job, nodes: list[dict[str, float]]) -> dict[str, float]:
    """Resources of one worker, by Ray's names."""
    engine = resolve(job.engine)
    options = engine.options
    gpus = job.ray.gpus
    if gpus is None:
        width = int(options.get("tensor_parallel_size") or 1) * int(
            options.get("pipeline_parallel_size") or 1
        )
        # A cluster without GPUs runs the engine's build for processors.
        has_gpus = any(node.get("GPU") for node in nodes)
        gpus = float(width) if engine.name in GPU_ENGINES and has_gpus else 0.0
    cpus = job.ray.cpus
    if cpus is None:
        whole = max((node.get("CPU", 1.0) for node in nodes), default=1.0)
        threads = float(options.get("threads") or whole)
        cpus = threads if engine.name == "llamacpp" else 1.0
    return {"CPU": cpus, "GPU": gpus}


def living_nodes(ray: ModuleType) -> list[dict[str, float]]:
    """Resources of each node that lives."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def room_for(ray: ModuleType, need: dict[str, float]) -> int:
    """Workers that the cluster has room for now."""
    return room(living_nodes(ray), need)
