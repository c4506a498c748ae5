"""Sorting suspects: whoever kills is found, whoever does not is given on, none is lost."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rowmill.engines.ledger import Ledger
from rowmill.engines.triage import Triage, halves
from rowmill.outcomes import pack
from rowmill.rows import Outcome, Prompts
from tests.engines.rows_of import byte_prompts


def keys_of(group: Sequence[Prompts]) -> list[int]:
    return [key for prompts in group for key in prompts.keys]


class MortalEngine:
    """Answers rows in order until it meets one that kills it."""

    def __init__(self, killers: set[int]) -> None:
        self.killers = killers
        self.answered: list[int] = []

    def run(self, group: list[Prompts]) -> list[Prompts] | None:
        """Returns what was open at its death; None where it lived."""
        ledger = Ledger()
        for prompts in group:
            ledger.add(prompts)
        for key in keys_of(group):
            if key in self.killers:
                return ledger.drain()
            self.answered.append(key)
            ledger.settle(pack([Outcome(key, "ok")]))
        return None


@given(
    st.sets(st.integers(0, 59), max_size=6),
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
)
def test_killers_are_found_and_no_other_row_is_blamed(
    killers: set[int], sizes: list[int]
) -> None:
    triage, engine = Triage(), MortalEngine(killers)
    blamed: list[int] = []
    held: list[Prompts] = []
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    group = [
        byte_prompts(["row"] * size, first_key=start)
        for size, start in zip(sizes, starts, strict=True)
    ]
    while group:
        in_flight = engine.run(group)
        if in_flight is not None:
            rest, killer = triage.blame(in_flight)
            held = rest + held
            blamed += killer.keys if killer else []
        group = triage.next_group()
        if not group:
            group, held = held, []

    every_key = set(range(sum(sizes)))
    assert sorted(every_key & killers) == sorted(blamed)
    assert sorted(every_key - killers) == sorted(engine.answered)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_halves_keep_every_row_in_order(sizes: list[int]) -> None:
    group = [byte_prompts(["row"] * size, first_key=100 * i) for i, size in enumerate(sizes)]
    first, second = halves(group)

    assert keys_of(group) == [*keys_of(first), *keys_of(second)]
    assert len(keys_of(second)) - len(keys_of(first)) in (0, 1)


@given(st.data())
def test_ledger_gives_back_what_is_open_and_drops_what_came_twice(data: st.DataObject) -> None:
    ledger, open_keys, first = Ledger(), list[int](), 0
    for _ in range(data.draw(st.integers(1, 12))):
        size = data.draw(st.integers(1, 3000))
        ledger.add(byte_prompts(["r"] * size, first_key=first))
        open_keys += range(first, first + size)
        first += size
        keep = data.draw(st.integers(1, 400))
        done = [key for key in open_keys if key % keep]
        outcomes = pack([Outcome(key, "ok") for key in done])
        assert done == ledger.settle(outcomes).keys.tolist()
        assert 0 == len(ledger.settle(outcomes))
        open_keys = [key for key in open_keys if not key % keep]

    assert len(open_keys) == len(ledger)
    assert open_keys == sorted(keys_of(ledger.drain()))
