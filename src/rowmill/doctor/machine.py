"""Memory, shared memory, open files, the disk of the output -> findings.

Promises: at most some seconds, and 64 MiB that are removed again; nothing else is written.
Knows nothing of: engines.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rowmill.doctor.finding import Finding, bad, ok, slow
from rowmill.storage.addresses import is_remote
from rowmill.telemetry import cores, memory_bytes

SHARED = Path("/dev/shm")
LEAST_SHARED, GOOD_SHARED = 1 << 30, 16 << 30
"""Engines over several GPUs pass tensors through it; a container has 64 MiB unless told otherwise."""
WRITE_BYTES, PIECE_BYTES, MOST_S = 64 << 20, 4 << 20, 2.0
LEAST_RATE = 50e6
"""Outcomes of 100,000 rows/s, the most that one process passes on, are some 50 MB/s with what a commit writes anew."""
MOST_SYNC_S = 0.1
SYNCS = 5
LEAST_FREE = 1 << 30
LEAST_FILES = 4096
CORES_A_GPU = 4


def look_at_machine(num_gpus: int) -> Iterator[Finding]:
    """Processors, memory, shared memory, limits."""
    here, memory = cores(), memory_bytes()
    all_cores = os.cpu_count() or 1
    part = f" of {all_cores}" if here < all_cores else ""
    if num_gpus and here < CORES_A_GPU * num_gpus:
        yield slow(
            "processors",
            f"{here:g}{part} cores for {num_gpus} GPU{'' if num_gpus == 1 else 's'}",
            f"give it {CORES_A_GPU} to 16 a GPU: an engine takes two, tokenising and writing the others",
        )
    else:
        yield ok("processors", f"{here:g}{part} cores")
    yield ok("memory", f"{memory / 2**30:.0f} GiB")
    yield from _shared(num_gpus)
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < LEAST_FILES:
        remedy = f"`ulimit -n {min(most, 65536) if most > 0 else 65536}`"
        yield slow(
            "open files", f"{files:,} at once: too few for many endpoints or shards", remedy
        )
    else:
        yield ok("open files", f"{files:,} at once")


def _shared(num_gpus: int) -> Iterator[Finding]:
    try:
        found = shutil.disk_usage(SHARED)
    except OSError:
        yield bad(
            "/dev/shm", "is not there", "mount a tmpfs; in a pod, an emptyDir of medium Memory"
        )
        return
    told = f"{found.free / 2**30:.1f} of {found.total / 2**30:.1f} GiB free"
    remedy = (
        "start the container with `--shm-size=16g`, the pod with an emptyDir of medium Memory"
    )
    if not os.access(SHARED, os.W_OK):
        yield bad("/dev/shm", "cannot be written to", remedy)
    elif num_gpus > 1 and found.total < LEAST_SHARED:
        yield bad("/dev/shm", f"{told}: too little for an engine over several GPUs", remedy)
    elif found.free < LEAST_SHARED:
        yield slow("/dev/shm", f"{told}: little for engines of several processes", remedy)
    else:
        yield ok("/dev/shm", told)


def look_at_disk(output: str) -> Iterator[Finding]:
    """How fast the disk under an output takes what is written, and how much room it has."""
    if is_remote(output):
        yield ok("output", f"`{output}` is an object store; its speed is not measured")
        return
    folder = Path(output).expanduser().absolute()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE:
        yield bad(
            "disk",
            f"{free / 2**30:.2f} GiB free at `{folder}`",
            "free some, or name another output",
        )
        return
    try:
        rate, sync_s = write_speed(folder)
    except OSError as error:
        yield bad(
            "disk", f"`{folder}` cannot be written to: {error.strerror}", "name another output"
        )
        return
    told = f"{rate / 1e6:,.0f} MB/s, {sync_s * 1e3:.1f} ms a sync, {free / 2**30:,.0f} GiB free at `{folder}`"
    if rate < LEAST_RATE or sync_s > MOST_SYNC_S:
        remedy = "name an output on a faster disk: outcomes are written as they come, and synced at each checkpoint"
        yield slow("disk", told, remedy)
    else:
        yield ok("disk", told)


def write_speed(folder: Path) -> tuple[float, float]:
    """(bytes a second, with the sync at the end; seconds of a small write that is synced)."""
    piece = os.urandom(PIECE_BYTES)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".rowmill-doctor-") as file:
        began, written = time.perf_counter(), 0
        while written < WRITE_BYTES and time.perf_counter() - began < MOST_S:
            written += file.write(piece)
            file.flush()
        os.fsync(file.fileno())
        rate = written / (time.perf_counter() - began)
        began = time.perf_counter()
        number = 0
        while number < SYNCS and time.perf_counter() - began < MOST_S:
            file.write(piece[:4096])
            file.flush()
            os.fsync(file.fileno())
            number += 1
        return rate, (time.perf_counter() - began) / number
