"""Moments of a run -> samples: often at first, seldom later, so that a week's run leaves some megabytes.

Promises: what goes up and down is the mean of all moments since the sample before; what counts up is as it is now.
Knows nothing of: who looks, where samples go.
Memory: the moments since the last sample, as sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rowmill.telemetry.gpus import Gpus, mean
from rowmill.telemetry.processes import Processes, net_bytes, thread_seconds
from rowmill.telemetry.sample import GpuUse, Sample

LEAST_S, MOST_S = 1.0, 60.0
"""Between two samples. A week has 11,000 of them: 300 in the first five minutes, 1,200 up to five hours, then one a
minute."""
SHARE = 1 / 300
"""Of the time so far, within these bounds."""


class Sampler:
    """Gathers moments, and makes a sample of them when one is due. Not safe for two threads."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._taken_at = clock()
        self._processes, self.gpus = Processes(), Gpus()
        self._threads: dict[str, float] = {}
        self._threads_before = thread_seconds()
        self._net = net_bytes()
        self._sums: dict[str, float] = {}
        self._looks = 0
        self._uses: list[list[GpuUse]] = []

    def look(self, depths: Mapping[str, float]) -> None:
        """Take a moment in: `in_flight`, `in_flight_target`, `waiting/STAGE`, `engine/NAME`."""
        self._looks += 1
        for name, value in depths.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        use = self.gpus.look()
        if use:
            self._uses.append(use)

    @property
    def is_due(self) -> bool:
        """Whether a sample is to be taken now."""
        now = self._clock()
        # A moment comes each second, about: half of one sooner is nearer than half of one later.
        return now - self._taken_at >= apart_s(now - self._began) - LEAST_S / 2

    def take(self, counts: Mapping[str, Any]) -> Sample:
        """A sample of all moments since the last one; `counts` are fields of it, as they are now."""
        self._taken_at = self._clock()
        means = {name: round(s / self._looks, 4) for name, s in self._sums.items()}
        usage = self._processes.look()
        self._threads |= {
            name: max(0.0, s - self._threads_before.get(name, 0.0))
            for name, s in thread_seconds().items()
        }
        received, sent, loop = (
            now - then for now, then in zip(net_bytes(), self._net, strict=True)
        )
        sample = Sample(
            in_flight=means.get("in_flight", 0.0),
            in_flight_target=means.get("in_flight_target", 0.0),
            waiting=_below("waiting/", means),
            engine=_below("engine/", means) | counts.get("engine", {}),
            cpu_s={role: round(one.cpu_s, 2) for role, one in usage.items()}
            | {f"rowmill/{name}": round(s, 3) for name, s in self._threads.items()},
            memory_bytes={role: one.memory_bytes for role, one in usage.items()},
            disk_read_bytes=sum(one.read_bytes for one in usage.values()),
            disk_write_bytes=sum(one.write_bytes for one in usage.values()),
            net_in_bytes=received,
            net_out_bytes=sent,
            loop_bytes=loop,
            gpus=mean(self._uses),
        )
        self._looks, self._sums, self._uses = 0, {}, []
        rest = {name: value for name, value in counts.items() if name != "engine"}
        return msgspec.structs.replace(sample, **rest)

    def close(self) -> None:
        """Let go of the GPUs' driver."""
        self.gpus.close()


def apart_s(passed_s: float) -> float:
    """Seconds between two samples when so many have passed."""
    return min(MOST_S, max(LEAST_S, SHARE * passed_s))


def _below(prefix: str, means: Mapping[str, float]) -> dict[str, float]:
    return {name[len(prefix) :]: v for name, v in means.items() if name.startswith(prefix)}
