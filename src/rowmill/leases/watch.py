"""Versions seen -> whether a thing stood still, by the clock of the one who looks.

Promises: no time written by another machine is ever read; the first sight of a version starts its clock.
Knows nothing of: what is watched.
Memory: one version for each name watched.
"""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """What this observer saw last, and since when."""

    def __init__(self, *, lease_s: float, clock: Callable[[], float]) -> None:
        self._lease_s = lease_s
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def stands_still(self, name: str, version: str) -> bool:
        """Whether every look at `name` for `lease_s` has found this version."""
        now = self._clock()
        last, since = self._seen.get(name, ("", now))
        if last != version:
            self._seen[name] = (version, now)
            return False
        return now - since >= self._lease_s

    def forget(self, name: str) -> None:
        """Look at `name` afresh the next time."""
        self._seen.pop(name, None)
