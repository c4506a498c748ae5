"""For authors of engine plugins: tests that an adapter keeps the contract.

    def test_my_engine_keeps_the_contract():
        check_engine(my_package.my_engine, EngineConfig(name="mine"), rows=my_rows())

Promises: what is broken is told by the name of the promise and a sentence; the engine is opened once, in the process
of the test, and runs once: each step of the script is given when the one before it is answered.
Knows nothing of: any one adapter.
Memory: a few dozen rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from rowmill.config import EngineConfig
from rowmill.rows import Outcome, Prompts
from rowmill.testing.broken import PROMISES, BrokenContract, require
from rowmill.testing.deaths import check_deaths
from rowmill.testing.feed import ScriptedFeed
from rowmill.testing.script import script
from rowmill.testing.settings import check_counters, check_limits, check_settings

__all__ = ["PROMISES", "BrokenContract", "check_deaths", "check_engine"]

_PATIENCE_S = 120.0


def check_engine(
    adapter: Any,
    engine: EngineConfig,
    *,
    rows: Prompts,
    agree: float = 1.0,
    leave_out: Collection[str] = (),
    patience_s: float = _PATIENCE_S,
) -> list[Outcome]:
    """Run rows through an adapter and see that it keeps the contract.

    Args:
        adapter: The module that is registered: `open`, and `declare` and `check_options` where it has them.
        engine: Settings that open it.
        rows: At least four rows, of which it should answer three at least; some may be rows that it refuses.
        agree: Least share of rows whose greedy answer is the same in other company. Below 1 for an engine that rounds
            as its batches fall, such as one in bfloat16.
        leave_out: Names in `limits.sampling` that are a server's to do, and that the one of this test does not do.
        patience_s: So long it may be silent while it holds rows.

    Returns:
        The outcomes of `rows`, by key, for checks of the author's own.

    Raises:
        BrokenContract: It does not keep it; `promise` names which of `PROMISES`.
    """
    check_settings(adapter, engine)
    opened = adapter.open(engine)
    try:
        check_limits(opened.limits, rows)
        answers: list[Outcome] = []
        done = tuple(name for name in opened.limits.sampling if name not in leave_out)
        limits = msgspec.structs.replace(opened.limits, sampling=done)
        feed = ScriptedFeed(
            script(
                rows, limits, agree=agree, answers=answers, embeds=not engine.is_asked_for_texts
            ),
            patience_s=patience_s,
        )
        for some in opened.run(feed):
            feed.answered(some)
        feed.check_flow()
        require(feed.is_done, "end", "`run` ended before the feed did, or with rows unanswered")
        check_counters(opened)
    finally:
        opened.close()
    return sorted(answers, key=lambda outcome: outcome.key)
