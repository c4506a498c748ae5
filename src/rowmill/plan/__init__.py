"""Requests -> their order; Prompts -> Plan. The plan is a value: pure, printable, testable without a GPU.

A window is arranged by its texts (arrange.py), measured in that order piece by piece, and each piece is planned.

Promises: every row of the window is in exactly one group or is a copy of one that is; groups keep the order
they are to be fed in; a `leader` group is named by the groups that wait for it; the same window gives the same plan.
Knows nothing of: engines beyond their Limits, files, time.
Memory: one window of prompts. Time: O(rows).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rowmill.config import PlanConfig
from rowmill.plan.arrange import Arranged, arrange, arrange_lot
from rowmill.plan.duplicates import find_copies
from rowmill.plan.levers import Lever
from rowmill.rows import Prompts

__all__ = ["Arranged", "Group", "Lever", "Plan", "arrange", "arrange_lot", "plan"]

_AS_THEY_STAND = Arranged(None, [])


class Group(msgspec.Struct, frozen=True):
    """Rows that go to the engine together, in this order."""

    rows: range | list[int]
    """Indices into the window's prompts."""
    leader: int | None = None
    """Row that must be computed before the others, because they share its prefix; None: no such need."""
    after: int | None = None
    """Group that must have been handed over before this one; None: none."""


class Plan(msgspec.Struct, frozen=True):
    """How one window of rows goes to the engine."""

    prompts: Prompts
    groups: list[Group]
    copies: dict[int, list[int]]
    """Key of a row that is asked -> keys of the equal rows that get its answer."""
    levers: list[Lever]

    @property
    def num_asked(self) -> int:
        """Rows that go to the engine."""
        return sum(len(group.rows) for group in self.groups)

    def batches(self, max_rows: int) -> Iterator[Prompts]:
        """The rows to ask, in order, at most `max_rows` at once and never across groups."""
        for group in self.groups:
            for start in range(0, len(group.rows), max_rows):
                rows = group.rows[start : start + max_rows]
                if isinstance(rows, range):
                    yield self.prompts.slice(rows.start, rows.stop)
                else:
                    yield self.prompts.take(rows)


def plan(prompts: Prompts, config: PlanConfig, arranged: Arranged = _AS_THEY_STAND) -> Plan:
    """Plan prompts that stand in the order they are to be asked: equal greedy rows are asked once."""
    prompts.replica_of = arranged.replica_of(prompts.keys)
    copies, lever = find_copies(prompts, config.duplicates)
    rows: range | list[int] = range(len(prompts))
    if copies:
        dropped = {key for keys in copies.values() for key in keys}
        rows = [i for i, key in enumerate(prompts.keys) if key not in dropped]
    groups = [Group(rows=rows)] if len(rows) else []
    return Plan(prompts=prompts, groups=groups, copies=copies, levers=[lever])
