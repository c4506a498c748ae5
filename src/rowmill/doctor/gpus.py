"""The driver's word on the GPUs -> findings: there, free, fast, linked, and of a driver that suits the libraries.

Promises: no library that takes memory on a GPU is imported; a machine without a GPU is no fault.
Knows nothing of: models.
Source: NVML; PCI devices of Linux; `torch/version.py` for the CUDA that torch was built with.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rowmill.doctor.finding import Finding, bad, ok, slow

NVIDIA, DISPLAY, ACCELERATOR = "0x10de", "0x03", "0x12"
OTHERS_BYTES = 1 << 30
"""Less than so much of a GPU's memory is what a desktop or a driver takes."""
NO_BF16, NO_FP8 = (8, 0), (8, 9)
SLOWED = {0x8: "its power brake", 0x40: "heat", 0x80: "a power brake from outside"}
"""Reasons of slow clocks that are somebody's to mend (`nvmlClocksEventReason`)."""


def look_at_gpus() -> Iterator[Finding]:
    """Each GPU, its driver, and how they are linked."""
    try:
        import pynvml
    except ImportError:
        yield from _without_nvml(_pci_gpus())
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield from _without_driver(_pci_gpus(), str(error))
        return
    try:
        yield from _driver(pynvml)
        devices = [
            pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())
        ]
        for index, device in enumerate(devices):
            with contextlib.suppress(pynvml.NVMLError):
                yield from _one(pynvml, index, device)
        if len(devices) > 1:
            yield from _links(pynvml, devices)
    finally:
        pynvml.nvmlShutdown()


def _without_nvml(seen: int) -> Iterator[Finding]:
    if seen:
        yield slow(
            "GPUs",
            f"{seen} on the PCI bus, and nothing to ask the driver with",
            "`pip install 'rowmill[nvml]'`",
        )
    else:
        yield ok("GPUs", "none: engines compute on the processor")


def _without_driver(seen: int, why: str) -> Iterator[Finding]:
    if seen:
        yield bad(
            "driver",
            f"{seen} NVIDIA GPU{'' if seen == 1 else 's'} on the PCI bus, and its driver does not answer ({why})",
            "load it (`modprobe nvidia`), install one, or give the container the GPU (`--gpus all`, the device plugin)",
        )
    else:
        yield ok("GPUs", "none: engines compute on the processor")


def _driver(nvml: Any) -> Iterator[Finding]:
    version = str(nvml.nvmlSystemGetDriverVersion())
    number = nvml.nvmlSystemGetCudaDriverVersion_v2()
    cuda = (number // 1000, number % 1000 // 10)
    told = f"driver {version}, CUDA up to {cuda[0]}.{cuda[1]}"
    built = cuda_of_torch()
    if built is None:
        yield ok("driver", told)
    elif built[0] > cuda[0]:
        yield bad(
            "driver",
            f"{told}, and torch was built for CUDA {built[0]}.{built[1]}",
            f"update the driver, or install a torch for CUDA {cuda[0]}",
        )
    else:
        yield ok("driver", f"{told}; torch was built for {built[0]}.{built[1]}")


def cuda_of_torch() -> tuple[int, int] | None:
    """The CUDA that the installed torch was built with; None without one. It is not imported: that takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    with contextlib.suppress(OSError):
        text = Path(spec.origin).with_name("version.py").read_text("utf-8")
        match = re.search(r"^cuda\b[^=]*=\s*['\"](\d+)\.(\d+)", text, re.MULTILINE)
        if match:
            return int(match[1]), int(match[2])
    return None


def _one(nvml: Any, index: int, device: Any) -> Iterator[Finding]:
    about = f"GPU {index}"
    name = str(nvml.nvmlDeviceGetName(device))
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    capability = nvml.nvmlDeviceGetCudaComputeCapability(device)
    told = f"{name}, {memory.total / 2**30:.0f} GiB"
    if tuple(capability) < NO_BF16:
        yield slow(
            about,
            f"{told}: it knows no bfloat16",
            'set `engine.dtype = "float16"`',
        )
    elif tuple(capability) < NO_FP8:
        yield ok(about, f"{told}: it has no fp8 arithmetic")
    else:
        yield ok(about, told)
    if memory.used > OTHERS_BYTES:
        pids = [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(device)]
        by = f" by process {', '.join(map(str, pids))}" if pids else ""
        yield slow(
            f"{about} memory",
            f"{memory.used / 2**30:.1f} GiB are taken{by}",
            "end what takes it if that is not meant, or lower `engine.gpu_memory_utilization`",
        )
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(device)
        found = [why for bit, why in SLOWED.items() if reasons & bit]
        if found:
            yield slow(
                f"{about} clocks",
                f"held down by {', '.join(found)}",
                "see to cooling and power",
            )
    with contextlib.suppress(nvml.NVMLError):
        width = nvml.nvmlDeviceGetCurrPcieLinkWidth(device)
        most = nvml.nvmlDeviceGetMaxPcieLinkWidth(device)
        if width < most:
            yield slow(
                f"{about} bus",
                f"{width} PCIe lanes of {most}",
                "see that it sits in a slot of full width; weights load slower",
            )


def _links(nvml: Any, devices: list[Any]) -> Iterator[Finding]:
    linked = sum(_num_nvlinks(nvml, device) > 0 for device in devices)
    if linked == len(devices):
        yield ok("GPU links", f"NVLink at all {linked} GPUs")
    else:
        yield slow(
            "GPU links",
            f"NVLink at {linked} of {len(devices)} GPUs: one engine over several of them waits for PCIe",
            "leave `engine.tensor_parallel_size` at the least that holds the model: one engine a GPU needs no link",
        )


def _num_nvlinks(nvml: Any, device: Any) -> int:
    number = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            number += bool(nvml.nvmlDeviceGetNvLinkState(device, link))
        except nvml.NVMLError:
            break
    return number


def _pci_gpus() -> int:
    """NVIDIA's GPUs on the bus, whether or not a driver has them."""
    number = 0
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):
            kind = (device / "class").read_text("ascii")
            maker = (device / "vendor").read_text("ascii").strip()
            number += maker == NVIDIA and kind.startswith((DISPLAY, ACCELERATOR))
    return number
