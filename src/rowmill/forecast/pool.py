"""The engine's block pool, played through: what is held, what may be found again, what is given up first.

Promises: blocks held and kept never exceed the pool; what was not used for longest goes first, of one row its own blocks
before what it shares, of a shared run its end before its beginning.
Knows nothing of: time, tokens.
Memory: an entry a run of shared blocks and a row that ended, while its blocks are kept.
Source: vLLM 0.33, `v1/core/block_pool.py` and `kv_cache_manager.py`: blocks are freed in reverse order into a queue that new
ones are taken from, and looked up as long as they lie in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

Run = tuple[int, int]
"""(its number, its blocks)"""


class Pool:
    """Blocks of one engine."""

    def __init__(self, blocks: int, *, keeps: bool = True) -> None:
        """A pool of so many blocks; `keeps`: whether blocks of rows that ended may be found again."""
        self.blocks = blocks
        self._keeps = keeps
        self.held = 0.0
        """Blocks of rows that run."""
        self._kept = 0.0
        self._queue: OrderedDict[int, float] = OrderedDict()
        """Nobody's blocks, the next to be given up first: a run's number, or below 0 what a row had for itself."""
        self._size: dict[int, float] = {}
        """Of each run, blocks that are there."""
        self._users: dict[int, int] = {}
        self._num_rows = 0

    def fits(self, runs: Sequence[Run], own: float) -> bool:
        """Whether a row could enter now."""
        users = self._users
        new = sum(blocks for number, blocks in runs if not users.get(number))
        return self.held + new + own <= self.blocks

    def enter(self, runs: Sequence[Run], own: float) -> int:
        """Take blocks for a row. Returns: blocks of its runs that were found."""
        found, is_whole = 0, True
        for number, blocks in runs:
            there = self._size.get(number, 0.0) if self._keeps else 0.0
            if is_whole:
                found += int(there)
            is_whole = is_whole and there >= blocks
            if self._users.get(number):
                self._users[number] += 1
                continue
            self._kept -= self._queue.pop(number, 0.0)
            self._users[number] = 1
            self._size[number] = blocks
            self._hold(blocks)
        self._hold(own)
        return found

    def grow(self, blocks: float) -> bool:
        """Take blocks for answers of rows that run. Returns: whether there were enough."""
        self._hold(blocks)
        return self.held <= self.blocks

    def leave(self, runs: Sequence[Run], own: float) -> None:
        """Give back what a row had; it is kept until others need it."""
        self.held -= own
        self._keep(~self._num_rows, own)
        self._num_rows += 1
        for number, blocks in reversed(runs):
            self._users[number] -= 1
            if not self._users[number]:
                del self._users[number]
                self.held -= blocks
                self._keep(number, float(blocks))

    def _hold(self, blocks: float) -> None:
        self.held += blocks
        while self._kept > 0 and self.held + self._kept > self.blocks:
            self._give_up(self.held + self._kept - self.blocks)

    def _give_up(self, blocks: float) -> None:
        number, there = next(iter(self._queue.items()))
        if there > blocks:
            self._queue[number] = there - blocks
            if number >= 0:
                self._size[number] = there - blocks
            self._kept -= blocks
            return
        del self._queue[number]
        self._size.pop(number, None)
        self._kept -= there

    def _keep(self, number: int, blocks: float) -> None:
        if not self._keeps or blocks <= 0:
            self._size.pop(number, None)
            return
        self._queue[number] = blocks
        self._kept += blocks
