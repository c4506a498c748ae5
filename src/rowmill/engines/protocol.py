"""What an engine adapter promises. It runs in a child process and pulls its work.

An adapter is a module with `open(job: EngineConfig-like dict) -> Engine`; the library it drives is imported there,
never at module level. Source of the pull shape: vLLM's step loop, an asyncio client and a pool of blocking calls
all fit it without a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from rowmill.config import EngineConfig
from rowmill.rows import Limits, Outcome, Prompts

__all__ = ["Engine", "Feed", "Limits", "Placement", "Replica"]


class Feed(Protocol):
    """Where an engine takes its work from."""

    def take(self, *, wait: bool) -> Prompts | None:
        """The next rows. `wait`: block until some come; else empty Prompts when there are none now.
        None: no more will ever come."""
        ...


class Replica(msgspec.Struct, frozen=True):
    """One of the engines that work side by side."""

    engine: EngineConfig
    environment: dict[str, str] = {}
    """Variables of its process, such as the GPUs it sees."""


class Placement(msgspec.Struct, frozen=True):
    """How many engines work side by side, where, and why so many."""

    replicas: list[Replica]
    reason: str = ""


class Engine(Protocol):
    """An open engine.

    One that counts for itself may have `counters() -> dict`, with the fields of `channel.Gauge` from `running` on;
    it is asked from another thread than `run`'s. One whose rows all have a time limit of its own may have
    `minds_time = True`: it is not ended for having no progress while its process lives.
    """

    limits: Limits

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """Take rows from `feed` as there is room, yield outcomes as they come, in any order.

        Every row taken ends as exactly one outcome; `attempts` and `seconds` are the adapter's to fill.
        An empty list may be yielded to let the caller breathe. Ends after the feed has ended and all is answered.
        """
        ...

    def close(self) -> None:
        """Free what is held."""
        ...
