"""How many workers there should be, and when so many were lost that it is better not gone on with. Pure.

Promises: never more workers than tasks left to commit; none where nothing is left; at least one where something is.
Knows nothing of: Ray, actors, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def wanted(*, open_tasks: int, most: int | None, room: int) -> int:
    """Workers that should live now.

    Args:
        open_tasks: tasks without a commit.
        most: workers at once that the job allows; None: as many as there is room for.
        room: workers that the nodes have room for now.
    """
    if not open_tasks:
        return 0
    return max(1, min(open_tasks, room if most is None else most))


def room(nodes: Iterable[Mapping[str, float]], need: Mapping[str, float]) -> int:
    """Workers that nodes of these resources have room for, other work of the cluster left aside."""
    total = 0
    for node in nodes:
        fits = [
            int(node.get(name, 0.0) / amount + 1e-9) for name, amount in need.items() if amount
        ]
        total += min(fits, default=0)
    return total


class Losses:
    """Workers lost one after another."""

    def __init__(self, most: int) -> None:
        """None so far.

        Args:
            most: so many may be lost in a row without a row answered between them.
        """
        self._most, self._row = most, 0
        self._answered = 0
        self.total = 0

    def lost(self, answered: int) -> bool:
        """Count one more. Returns: whether to go on.

        Args:
            answered: rows answered so far.
        """
        self.total += 1
        self._row = 1 if answered > self._answered else self._row + 1
        self._answered = answered
        return self._row <= self._most
