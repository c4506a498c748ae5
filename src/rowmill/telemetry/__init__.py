"""What a run says of itself in numbers while it goes on."""

from __future__ import annotations

from rowmill.telemetry.processes import cores, memory_bytes
from rowmill.telemetry.sample import GpuUse, Sample, Stage
from rowmill.telemetry.sampler import Sampler

__all__ = ["GpuUse", "Sample", "Sampler", "Stage", "cores", "memory_bytes"]
