"""What a run says of itself in numbers while it goes on."""

from __future__ import annotations

from rowmill.telemetry.sample import GpuUse, Sample, Stage

__all__ = ["GpuUse", "Sample", "Stage"]
