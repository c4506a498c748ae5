"""A feed that holds given batches, for engines run in the test's own process."""

from __future__ import annotations

from collections.abc import Iterable

from rowmill.engines.protocol import Engine
from rowmill.rows import Outcome, Prompts


class ListFeed:
    """The given batches, then the end."""

    def __init__(self, batches: Iterable[Prompts]) -> None:
        self._batches = list(batches)

    def take(self, *, wait: bool) -> Prompts | None:
        del wait
        return self._batches.pop(0) if self._batches else None


def answers_of(engine: Engine, *batches: Prompts) -> list[Outcome]:
    """All outcomes, by key; the engine is closed."""
    outcomes = [o for some in engine.run(ListFeed(batches)) for o in some]
    engine.close()
    return sorted(outcomes, key=lambda o: o.key)
