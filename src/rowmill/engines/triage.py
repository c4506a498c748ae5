"""Rows in flight at deaths of the engine -> groups to give it alone, until the row that kills it is found.

Promises: a row is blamed only if the engine died with it alone in flight, after two earlier deaths with it;
every row that comes in goes out again, as one to give on or as the one blamed.
Knows nothing of: processes, channels, threads.
Memory: two numbers a row that was in flight at a death, and the rows of the groups.
"""

from __future__ import annotations

from rowmill.rows import Prompts

_SUSPECT_DEATHS = 2

Group = list[Prompts]


class Triage:
    """Who was there when the engine died."""

    def __init__(self) -> None:
        self.deaths_of: dict[int, int] = {}
        """Deaths that a row, not answered yet, was in flight at and may have caused."""
        self.tries_of: dict[int, int] = {}
        """Deaths that it was in flight at, whatever caused them."""
        self._groups: list[Group] = []
        self._is_group_out = False

    @property
    def is_on(self) -> bool:
        """Whether suspects are being sorted: the engine must get nothing but `next_group`."""
        return self._is_group_out or bool(self._groups)

    @property
    def waiting(self) -> int:
        """Rows of the groups that are not given yet."""
        return sum(_size(group) for group in list(self._groups))

    def next_group(self) -> Group:
        """The next rows to give alone; empty when all are sorted."""
        group = self._groups.pop() if self._groups else []
        self._is_group_out = bool(group)
        return group

    def forget(self, key: int) -> int:
        """A row is answered. Returns: the deaths that it was in flight at."""
        self.deaths_of.pop(key, None)
        return self.tries_of.pop(key, 0)

    def blame(
        self, in_flight: Group, *, is_blamed: bool = True
    ) -> tuple[Group, Prompts | None]:
        """Sort the rows in flight at a death.

        Args:
            is_blamed: False where the cause is known, and is not a row.

        Returns:
            Rows to give again without suspicion, and the row (one) that killed the engine, if that is clear.
        """
        for prompts in in_flight:
            for key in prompts.keys:
                self.tries_of[key] = self.tries_of.get(key, 0) + 1
                if is_blamed:
                    self.deaths_of[key] = self.deaths_of.get(key, 0) + 1
        if not is_blamed:
            return self._as_before(in_flight)
        if not self._is_group_out:
            rest, suspects = self._split(in_flight)
            self._push(suspects)
            return rest, None
        self._is_group_out = False
        if _size(in_flight) == 1:
            return [], in_flight[0]
        for half in reversed(halves(in_flight)):
            self._push(half)
        return [], None

    def _as_before(self, in_flight: Group) -> tuple[Group, Prompts | None]:
        """Rows are given again as they were: suspects alone, others freely."""
        if not self._is_group_out:
            return in_flight, None
        self._is_group_out = False
        self._push(in_flight)
        return [], None

    def _push(self, group: Group) -> None:
        if group:
            self._groups.append(group)

    def _split(self, in_flight: Group) -> tuple[Group, Group]:
        rest: Group = []
        suspects: Group = []
        for prompts in in_flight:
            is_suspect = [self.deaths_of[key] >= _SUSPECT_DEATHS for key in prompts.keys]
            if any(is_suspect):
                suspects.append(prompts.take([i for i, s in enumerate(is_suspect) if s]))
            if not all(is_suspect):
                rest.append(prompts.take([i for i, s in enumerate(is_suspect) if not s]))
        return rest, suspects


def halves(group: Group) -> tuple[Group, Group]:
    """The rows of a group cut in two, in order; the first half is the smaller one."""
    middle = _size(group) // 2
    first: Group = []
    second: Group = []
    for prompts in group:
        cut = min(middle, len(prompts))
        middle -= cut
        if cut:
            first.append(prompts.slice(0, cut))
        if cut < len(prompts):
            second.append(prompts.slice(cut, len(prompts)))
    return first, second


def _size(group: Group) -> int:
    return sum(map(len, group))
