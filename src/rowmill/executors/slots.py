"""One of several workers that share a run: its own tasks first, whatever is left after, and an end when nothing is.

Promises: number and count only say what is preferred; the leases alone say who may do what, so that a number that
lives twice, comes late or never comes loses no row.
Knows nothing of: who starts workers.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Sequence

import msgspec

PATIENCE_LEASES = 1.5
"""A task whose holder died is free after one lease; who has nothing to do looks a little longer than that."""


class Slot(msgspec.Struct, frozen=True):
    """Worker `index` of `of`."""

    index: int = 0
    of: int = 1
    patience_s: float = math.inf
    """So long others may hold all that is left, until a worker with nothing to do ends; inf: to their end."""

    @property
    def is_alone(self) -> bool:
        """Whether there is no other by design."""
        return self.patience_s == math.inf

    def arranged(self, tasks: Sequence[int]) -> list[int]:
        """The tasks of this number, then the others: from its own neighbour on, so that not all begin with the same."""
        return sorted(tasks, key=lambda task: ((task - self.index) % self.of, task))

    def share(self, rows: int) -> int:
        """Its part of so many rows."""
        return max(1, rows // self.of) if rows else 0

    def fair_tasks(self, tasks_left: int) -> float:
        """How many tasks it may hold unread of so many that are left: half of its even share, so that all end together."""
        return math.inf if self.is_alone else max(1, -(-tasks_left // (2 * self.of)))


ALONE = Slot()


def pod_name() -> str:
    """What this worker calls itself: pods of one index share a host name, and each is process 1."""
    return f"{os.environ.get('ROWMILL_WORKER') or socket.gethostname()}-{os.getpid()}"
