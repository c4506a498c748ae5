"""An engine as a run has it, in a process of its own: killed with rows in hand, it is started again."""

from __future__ import annotations

import threading
from pathlib import Path

from rowmill.config import EngineConfig
from rowmill.engines.supervise import Supervisor
from rowmill.rows import Outcome, Prompts
from rowmill.testing.broken import require


def check_deaths(engine: EngineConfig, *, rows: Prompts, log: Path) -> list[Outcome]:
    """Kill the engine once with rows in hand, and see that every row is answered once.

    Args:
        engine: Settings that open it; `name` is that of a registered engine, a plugin's too.
        rows: At least two rows; it is killed once it has answered one.
        log: Where what the engine writes goes.

    Returns:
        The outcomes, by key.

    Raises:
        BrokenContract: A row is lost or doubled, or the engine was not started again.
    """
    supervisor = Supervisor(engine, log=log)
    supervisor.start()
    outcomes: list[Outcome] = []
    try:
        supervisor.submit(rows.slice(0, 1))
        rest = threading.Thread(target=_submit, args=(supervisor, rows))
        for some in supervisor.outcomes():
            outcomes += some.unpack()
            if rest.ident is None:
                process = supervisor._process  # noqa: SLF001 - a death is nothing that an engine offers
                if process is not None:
                    process.kill()
                rest.start()
        rest.join()
    finally:
        supervisor.close()
    keys = sorted(outcome.key for outcome in outcomes)
    require(keys == sorted(rows.keys), "deaths", f"{len(keys)} outcomes for {len(rows)} rows")
    words = f"the engine died {supervisor.deaths} times, expected 1"
    require(supervisor.deaths == 1, "deaths", words)
    return sorted(outcomes, key=lambda outcome: outcome.key)


def _submit(supervisor: Supervisor, rows: Prompts) -> None:
    supervisor.submit(rows.slice(1, len(rows)))
    supervisor.finish()
