"""Rows in the order they are to be asked -> which may go now, and which wait until a beginning they share is computed.

For engines that share a beginning only once it stands in their cache: rows of one prefix that enter the same prefill batch
each compute it. The first row with a beginning leads; those that share enough of it follow when its first token is there.

Promises: every row is let go exactly once, leaders before followers; a leader that fails lets its followers go.
Knows nothing of: engines, time.
Memory: rows that wait, and the leaders above the last row, one a branch of its prompt.
Source: measured with SGLang 0.5.14 on an H200: 4,000 rows with 400 beginnings, grouped and handed over at once, found 21 % of
their tokens in the cache; shuffled 36 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec
import numpy as np

from rowmill.rows import Ids

LEAST_SHARED = 64
"""Tokens of a beginning that are worth waiting for: computing fewer again costs less than a step."""

Row = TypeVar("Row")


class _Branch(msgspec.Struct, Generic[Row]):
    """What one row added to the beginnings before it."""

    start: int
    """Tokens of the row that came from rows before it."""
    key: int
    is_sent: bool = False
    is_computed: bool = False
    followers: list[tuple[int, Row]] = msgspec.field(default_factory=list)


class Leaders(Generic[Row]):
    """Holds rows back until their leaders are computed."""

    def __init__(self, *, least_shared: int = LEAST_SHARED) -> None:
        self._least = least_shared
        self._last: Ids = np.empty(0, np.uint32)
        self._path: list[_Branch[Row]] = []
        """Branches that the last row is made of, from its beginning on."""
        self._open: dict[int, _Branch[Row]] = {}
        """By key: rows that are not computed yet."""

    @property
    def num_waiting(self) -> int:
        """Rows that are held back."""
        return sum(len(branch.followers) for branch in self._open.values())

    def add(self, rows: Iterable[tuple[int, Ids, Row]]) -> list[tuple[Row, bool]]:
        """Take rows in their order: (key, token ids, row).

        Returns:
            Those that may go now, and for each whether others wait for its first token.
        """
        going: list[tuple[_Branch[Row], Row]] = []
        for key, ids, row in rows:
            leader = self._leader_of(ids)
            branch = _Branch[Row](start=self._shared, key=key)
            self._path.append(branch)
            self._open[key] = branch
            if leader is None or leader.is_computed:
                going.append((branch, row))
            else:
                leader.followers.append((key, row))
        return [self._sent(branch, row) for branch, row in going]

    def computed(self, key: int) -> list[tuple[Row, bool]]:
        """A row has its first token, or ended in whatever way: its followers may go."""
        branch = self._open.pop(key, None)
        if branch is None:
            return []
        branch.is_computed = True
        followers, branch.followers = branch.followers, []
        return [self._sent(self._open[follower], row) for follower, row in followers]

    def _sent(self, branch: _Branch[Row], row: Row) -> tuple[Row, bool]:
        """A row goes. One that nobody waits for by now tells nothing before its end: those that come later go at once."""
        branch.is_sent = True
        if not branch.followers:
            branch.is_computed = True
        return row, bool(branch.followers)

    def _leader_of(self, ids: Ids) -> _Branch[Row] | None:
        """The row that brought the beginning of `ids`; None where too little is shared."""
        shared = self._shared = _shared(self._last, ids)
        self._last = ids
        while self._path and self._path[-1].start >= max(shared, 1):
            self._path.pop()
        end = shared
        for branch in reversed(self._path):
            if end - branch.start >= self._least:
                return branch
            end = min(end, branch.start)
        return None


def _shared(left: Ids, right: Ids) -> int:
    """Tokens that two prompts begin with alike."""
    most = min(len(left), len(right))
    differs = left[:most] != right[:most]
    first = int(differs.argmax()) if most else 0
    return first if most and differs[first] else most
