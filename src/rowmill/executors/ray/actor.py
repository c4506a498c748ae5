"""The actor: one worker of a run in a process that Ray starts.

Promises: a job of another rowmill than this node's is refused.
Knows nothing of: other workers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.errors import ConfigError
from rowmill.executors.reasons import versions
from rowmill.executors.sharing import Ended, Look, Share
from rowmill.executors.slots import Slot


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told when it is started."""

    job: dict[str, Any]
    token: str
    version: str
    """Of the rowmill that asks."""
    slot: Slot


class RayWorker:
    """See the module. Methods run on threads of their own, so that one can look while another works."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._share = Share(
            Job.model_validate(order.job),
            token=order.token,
            slot=order.slot,
        )

    def work(self) -> Ended:
        """Work until nothing is left to do, or `stop`."""
        here = versions().get("rowmill", "")
        if self._order.version != here:
            reason = (
                f"rowmill {here} on a node and {self._order.version} where the command was"
                " given; install the same on all nodes"
            )
            look = self._share.look(self._order.slot.of)
            return Ended(look=look, error=ConfigError(reason=reason))
        return self._share.work()

    def look(self, workers: int) -> Look:
        """How it is; there are so many workers now."""
        return self._share.look(workers)

    def stop(self, reason: str, exit_code: int) -> None:
        """Have it drain and end."""
        self._share.stop(reason, exit_code)
