"""`[ray]`: the workers of a job on a Ray cluster.

Knows nothing of: Ray, the rest of the job.
"""

from __future__ import annotations

from pydantic import Field

from rowmill.part import Part


class RayConfig(Part):
    """`[ray]`: workers of `run.executor = "ray"`."""

    address: str = ""
    """`HOST:PORT` of a cluster's head, or `auto` for the one on this machine. Empty: `RAY_ADDRESS`, else a cluster of
    this machine alone that ends with the run."""
    workers: int | None = Field(default=None, gt=0)
    """Most workers at once; there are never more than tasks to do. None: as many as the nodes have room for, counted
    anew as nodes come and go. A cluster that adds nodes on demand needs a number: it adds them for workers that wait."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs of one worker. None: tensor x pipeline parallel of an engine that needs a GPU, else none."""
    cpus: float | None = Field(default=None, gt=0)
    """Cores that Ray sets aside for one worker. None: `engine.threads` of `llamacpp`, or all of a node's; else 1."""
    prepare: int | None = Field(default=None, ge=0)
    """Cores that tokenise rows ahead of the workers and leave token ids under `prepared/` of the output, 4 GiB at most;
    never those that workers may want. 0: none. None: two a worker with GPUs, on nodes without GPUs, where the engine
    takes token ids; on a worker's own node the same cores would do the same work, with a detour over the disk."""
