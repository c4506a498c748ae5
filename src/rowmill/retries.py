"""A deliberate second asking, as it was planned: `plan/retry-N.json`.

Promises: written before any row is asked again; only tasks of files that join the run meanwhile are added.
Knows nothing of: outcomes, how rows are asked.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowmill import rundir
from rowmill.storage import Storage

PLACES = ("source", "output.path")
"""Where things lie is no setting of a retry."""


class RetryPlan(msgspec.Struct, frozen=True):
    """Which rows are asked again, and how."""

    number: int
    kinds: tuple[str, ...]
    """Kinds of failure; none: all."""
    tasks: list[int]
    left: dict[int, list[str]] = {}
    """By task, segments that earlier retries wrote and never committed: what failed in them failed before this one."""
    settings: dict[str, Any] = {}
    """Settings that differ from the run's own, by dotted key; None: left to its default."""


def read_retries(storage: Storage) -> list[RetryPlan]:
    """All retries that were planned, in order."""
    names = storage.list(rundir.RETRIES)
    return [msgspec.json.decode(storage.read(name), type=RetryPlan) for name in names]


def differing(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Settings of the job `new` that are not those of `old`, by dotted key."""
    before, after = flat(old), flat(new)
    names = sorted(before.keys() | after.keys())
    return {n: after.get(n) for n in names if before.get(n) != after.get(n) and n not in PLACES}


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of a job by dotted key."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and name != "schema":
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
