"""GPUs of this machine, or of a table.

Promises: asks the driver's own tool, never a library that would take memory on the GPU; no tool, no GPUs.
Knows nothing of: who uses them.
Source: rates are those measured on an H200 (790 TFLOP/s bf16, 4.3 TB/s), else makers' dense figures
times 0.75 and bandwidths times 0.85; memory as the driver tells it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import msgspec

from rowmill.visible_gpus import visible

_QUERY = [
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,memory.used,uuid",
    "--format=csv,noheader,nounits",
]
_PATIENCE_S = 20.0
DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
"""What a driver of NVIDIA's, or of AMD's, leaves to talk to."""
GIB = 1 << 30


class Gpu(msgspec.Struct, frozen=True):
    """One GPU."""

    index: int
    name: str
    memory_bytes: int
    used_bytes: int = 0
    flops: float = 0.0
    """bf16 operations a second that large products reach."""
    bandwidth: float = 0.0
    """Bytes a second from its memory."""
    uuid: str = ""
    """The driver's name of it, as `GPU-8932f937-d72c-...`."""


TABLE = {
    "T4": (15, 48e12, 0.27e12),
    "L4": (22, 90e12, 0.25e12),
    "A10": (22, 94e12, 0.51e12),
    "L40S": (44, 270e12, 0.73e12),
    "RTX 4090": (23, 124e12, 0.86e12),
    "A100-40": (39, 234e12, 1.32e12),
    "A100-80": (79, 234e12, 1.73e12),
    "H100": (79, 740e12, 2.85e12),
    "H200": (139, 790e12, 4.3e12),
    "B200": (178, 1690e12, 6.8e12),
}
"""Name -> GiB, bf16 operations a second, bytes a second."""


def gpu_named(name: str) -> Gpu | None:
    """A GPU of the table, by its name in any spelling; None where it is not there."""
    for known, (gib, flops, bandwidth) in TABLE.items():
        if _plain(known) == _plain(name):
            return Gpu(0, known, int(gib * GIB), 0, flops, bandwidth)
    return None


def _plain(name: str) -> str:
    return "".join(c for c in name.upper() if c.isalnum()).removeprefix("NVIDIA")


def has_driver() -> bool:
    """Whether a driver of GPUs is here: no process is asked, and no GPU need be free."""
    return any(Path(device).exists() for device in DRIVERS)


def find_gpus() -> list[Gpu]:
    """The GPUs this process may use, in the driver's order; empty where there are none."""
    if shutil.which(_QUERY[0]) is None:
        return []
    try:
        found = subprocess.run(_QUERY, capture_output=True, check=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = {gpu.index: gpu for gpu in parse_query(found.stdout.decode(errors="replace"))}
    uuids = {index: gpu.uuid for index, gpu in gpus.items()}
    return [gpus[index] for index in visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))]


@lru_cache(maxsize=4)
def gpus_seen(_: str | None) -> tuple[Gpu, ...]:
    """`find_gpus`, once for each `CUDA_VISIBLE_DEVICES`: asking the driver takes up to a second."""
    return tuple(find_gpus())


def parse_query(text: str) -> list[Gpu]:
    """What the driver's tool printed; lines that are no GPUs are left out."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and all(part.isdecimal() for part in (parts[0], *parts[2:4])):
            memory = int(parts[2]) << 20
            flops, bandwidth = rates_of(parts[1], memory)
            gpus.append(
                Gpu(
                    int(parts[0]),
                    parts[1],
                    memory,
                    int(parts[3]) << 20,
                    flops,
                    bandwidth,
                    parts[4],
                )
            )
    return gpus


def rates_of(name: str, memory_bytes: int) -> tuple[float, float]:
    """(operations, bytes) a second of a GPU by its name; zeros where it is not in the table."""
    kind = kind_of(name, memory_bytes)
    return TABLE[kind][1:] if kind else (0.0, 0.0)


def kind_of(name: str, memory_bytes: int = 80 * GIB) -> str:
    """The table's name of a GPU by the driver's; empty where it is not there."""
    if name in TABLE:
        return name
    plain = name.upper().replace("-", " ")
    if "A100" in plain:
        return "A100-80" if memory_bytes > 60 * GIB else "A100-40"
    # Longer names first: an L40S is no L4.
    for key in sorted(TABLE, key=len, reverse=True):
        if key in plain.split() or key in plain:
            return key
    return ""
