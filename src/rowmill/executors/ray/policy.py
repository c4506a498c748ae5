"""How many workers there should be, and when so many were lost that it is better not gone on with. Pure.

Promises: never more workers than tasks left to commit; none where nothing is left; at least one where something is.
Knows nothing of: Ray, actors, clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, zip_longest

PREPARERS_A_WORKER = 2
"""A core tokenises some 10^5 tokens/s, which is more than most GPUs prefill."""
AHEAD_A_WORKER, AHEAD_A_PREPARER = 4, 2
"""Tasks that may lie tokenised and not be claimed."""


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


def spots(
    nodes: Mapping[str, Mapping[str, float]],
    need: Mapping[str, float],
    *,
    most: int | None,
    asked: int | None,
) -> list[str]:
    """A node for each process that tokenises ahead; no core is among them that a worker may want.

    Args:
        nodes: resources of those that live, by their ids.
        need: resources of one worker.
        most: workers at once that the job allows; None: as many as there is room for.
        asked: such processes that the job asks for; None: two a worker with GPUs, on nodes without.
    """
    on_gpus = bool(need.get("GPU"))
    apart = {node: has for node, has in nodes.items() if on_gpus and not has.get("GPU")}
    beside = {node: has for node, has in nodes.items() if node not in apart}
    order = _in_turn({node: int(has.get("CPU", 0.0)) for node, has in apart.items()})
    if asked is None:
        return order[: PREPARERS_A_WORKER * min(room(beside.values(), need), most or 1 << 30)]
    left = {}
    for node, has in beside.items():
        workers = min(room([has], need), most or 1 << 30)
        left[node] = int(has.get("CPU", 0.0) - workers * need.get("CPU", 0.0) + 1e-9)
    return [*order, *_in_turn(left)][:asked]


def _in_turn(cores: Mapping[str, int]) -> list[str]:
    """Each node as often as it has cores, all nodes in turn."""
    rounds = zip_longest(*([node] * max(0, number) for node, number in cores.items()))
    return [node for node in chain.from_iterable(rounds) if node is not None]


def missing(wanted: Sequence[str], there: Iterable[str]) -> list[str]:
    """The spots that nobody is at."""
    taken = Counter(there)
    left = []
    for spot in wanted:
        if taken[spot]:
            taken[spot] -= 1
        else:
            left.append(spot)
    return left


def ahead(
    open_tasks: Sequence[int],
    claimed: Collection[int],
    prepared: Collection[int],
    *,
    workers: int,
    preparers: int,
) -> list[int]:
    """Tasks to tokenise next, in order.

    Args:
        open_tasks: without a commit, in order.
        claimed: that some worker holds or held.
        prepared: tokenised already, or just being so.
        workers: that live; each is about to claim a task.
    """
    free = [task for task in open_tasks if task not in claimed]
    most = max(AHEAD_A_WORKER * workers, AHEAD_A_PREPARER * preparers)
    waiting = sum(task in prepared for task in free)
    return [task for task in free[workers:] if task not in prepared][: max(0, most - waiting)]


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
