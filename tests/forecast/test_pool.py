"""The pool of runs, against one that has every block."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from rowmill.forecast.pool import Pool, Run

BLOCKS = 24
SIZES = {0: 6, 1: 4, 2: 3, 3: 5}
"""Run 0 is what all begin with; 1, 2 and 3 come behind it."""
MOVES = st.lists(
    st.tuples(st.sampled_from([(), (0,), (0, 1), (0, 2), (0, 3), (3,)]), st.integers(1, 4)),
    min_size=1,
    max_size=30,
)


class EveryBlock:
    """As vLLM: blocks nobody uses lie in a queue, the least recently used first, the end of a row before its beginning."""

    def __init__(self, blocks: int) -> None:
        self.free: OrderedDict[object, None] = OrderedDict(
            (("blank", i), None) for i in range(blocks)
        )
        self.users: dict[object, int] = {}

    def enter(self, names: list[object]) -> int:
        found, is_whole = 0, True
        for name in names:
            is_whole = is_whole and (name in self.users or name in self.free)
            found += is_whole
        for name in names:
            self.users[name] = self.users.get(name, 0) + 1
            self.free.pop(name, None)
        while len(self.free) + len(self.users) > BLOCKS:
            self.free.popitem(last=False)
        return found

    def leave(self, names: list[object]) -> None:
        for name in reversed(names):
            self.users[name] -= 1
            if not self.users[name]:
                del self.users[name]
                self.free[name] = None


@given(MOVES, st.data())
def test_runs_are_found_as_single_blocks_are(
    moves: list[tuple[tuple[int, ...], int]], data: st.DataObject
) -> None:
    pool, plain = Pool(BLOCKS), EveryBlock(BLOCKS)
    running: list[tuple[list[Run], int, list[object]]] = []
    for number, (names, own) in enumerate(moves):
        runs = [(name, SIZES[name]) for name in names]
        while running and (not pool.fits(runs, own) or data.draw(st.booleans())):
            old, size, blocks = running.pop(data.draw(st.integers(0, len(running) - 1)))
            pool.leave(old, size)
            plain.leave(blocks)
        shared: list[object] = [(name, i) for name, size in runs for i in range(size)]
        blocks = [*shared, *(("own", number, i) for i in range(own))]

        assert pool.fits(runs, own)
        assert pool.enter(runs, own) == plain.enter(blocks)
        assert pool.held == len(plain.users)
        assert pool.held <= BLOCKS
        running.append((runs, own, blocks))


def test_a_pool_that_keeps_nothing_finds_nothing() -> None:
    pool = Pool(100, keeps=False)

    for _ in range(3):
        assert pool.enter([(0, 6)], 2) == 0
        pool.leave([(0, 6)], 2)
    assert pool.held == 0


def test_answers_take_blocks_until_there_are_none() -> None:
    pool = Pool(10)
    pool.enter([], 8)

    assert pool.grow(2)
    assert not pool.grow(0.5)
