"""The driver's counters of the GPUs -> how much each is used.

Promises: no GPU, no driver or no `nvidia-ml-py` is no error, and what one driver does not tell is left out; no memory is
taken on a GPU.
Knows nothing of: who uses them.
Source: NVML, as `nvidia-ml-py` binds it; tensor and bandwidth shares are its GPM metrics 5 and 10, of Hopper and later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rowmill.telemetry.sample import GpuUse
from rowmill.visible_gpus import visible

DRIVERS = ("/dev/nvidiactl", "/dev/dxg")
"""What a driver of NVIDIA's leaves to talk to: of Linux, and of Linux within Windows."""
_TENSOR, _BANDWIDTH = 5, 10


class Gpus:
    """The GPUs that this process and its children may use. Not safe for two threads."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[tuple[int, Any]] = []
        self._gpm: dict[int, Any] = {}
        """Index -> the counters' state at the last look."""
        # The bindings take 25 ms to import: nobody pays for them where there is no driver.
        if any(Path(device).exists() for device in DRIVERS):
            with contextlib.suppress(ImportError):
                self._open()

    def _open(self) -> None:
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._nvml = pynvml
            self._devices = list(_visible(pynvml))
            self._begin_counting()

    def names(self) -> list[str]:
        """What they are called."""
        found = []
        for _, device in self._devices:
            with self._told():
                name = self._nvml.nvmlDeviceGetName(device)
                found.append(name.decode() if isinstance(name, bytes) else str(name))
        return found

    def look(self) -> list[GpuUse]:
        """How each is used now."""
        return [self._use(index, device) for index, device in self._devices]

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            with self._told():
                self._nvml.nvmlShutdown()
        self._nvml, self._devices = None, []

    def _told(self) -> contextlib.suppress:
        """What a driver does not know is no number."""
        return contextlib.suppress(self._nvml.NVMLError)

    def _use(self, index: int, device: Any) -> GpuUse:
        nvml = self._nvml
        found: dict[str, float] = {}
        with self._told():
            rates = nvml.nvmlDeviceGetUtilizationRates(device)
            found |= {"use": rates.gpu / 100, "memory_use": rates.memory / 100}
        with self._told():
            found["memory_bytes"] = int(nvml.nvmlDeviceGetMemoryInfo(device).used)
        with self._told():
            found["power_w"] = nvml.nvmlDeviceGetPowerUsage(device) / 1000
            found["power_limit_w"] = nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000
        with self._told():
            found["clock_mhz"] = nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)
            found["full_clock_mhz"] = nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)
        with self._told():
            kind = nvml.NVML_TEMPERATURE_GPU
            found["temperature_c"] = nvml.nvmlDeviceGetTemperature(device, kind)
        with self._told():
            found |= self._counted(index, device)
        return GpuUse(index=index, **found)  # type: ignore[arg-type]

    def _begin_counting(self) -> None:
        """Take the first of each pair of counters, where there are any."""
        for index, device in self._devices:
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                if self._nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
                    self._gpm[index] = self._counters(device)

    def _counters(self, device: Any) -> Any:
        sample = self._nvml.nvmlGpmSampleAlloc()
        self._nvml.nvmlGpmSampleGet(device, sample)
        return sample

    def _counted(self, index: int, device: Any) -> dict[str, float]:
        """Shares between the last look and now."""
        before = self._gpm.get(index)
        if before is None:
            return {}
        nvml = self._nvml
        now = self._counters(device)
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
        asked.sample1, asked.sample2 = before, now
        asked.metrics[0].metricId, asked.metrics[1].metricId = _TENSOR, _BANDWIDTH
        try:
            nvml.nvmlGpmMetricsGet(asked)
        finally:
            self._gpm[index] = now
            nvml.nvmlGpmSampleFree(before)
        tensor, bandwidth = (asked.metrics[i] for i in range(2))
        found = {"tensor_use": tensor, "bandwidth_use": bandwidth}
        return {name: m.value / 100 for name, m in found.items() if not m.nvmlReturn}


def mean(uses: list[list[GpuUse]]) -> list[GpuUse]:
    """Several looks as one: the mean of each number of each GPU."""
    by_index: dict[int, list[GpuUse]] = {}
    for one in (use for look in uses for use in look):
        by_index.setdefault(one.index, []).append(one)
    return [_mean_of(index, found) for index, found in by_index.items()]


def _mean_of(index: int, uses: list[GpuUse]) -> GpuUse:
    names = [name for name in GpuUse.__struct_fields__ if name != "index"]
    sums = {name: sum(getattr(use, name) for use in uses) / len(uses) for name in names}
    sums["memory_bytes"] = int(sums["memory_bytes"])
    rounded = {name: round(value, 3) for name, value in sums.items()}
    return msgspec.structs.replace(uses[-1], **rounded)


def _visible(nvml: Any) -> Iterator[tuple[int, Any]]:
    """(index, device) of those that `CUDA_VISIBLE_DEVICES` leaves."""
    devices, uuids = {}, {}
    for index in range(nvml.nvmlDeviceGetCount()):
        devices[index] = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(devices[index])
        uuids[index] = uuid.decode() if isinstance(uuid, bytes) else uuid
    for index in sorted(visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))):
        yield index, devices[index]
