"""Windows and outcomes of one worker -> what is left of the work, and a word where answers are no longer what they were.

Promises: told from any thread; an alarm is told once, with what it means for the rest.
Knows nothing of: engines, files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rowmill.executors.opening import Opened
from rowmill.forecast.drift import Alarm, Drift
from rowmill.forecast.learned import asked_of
from rowmill.forecast.left import Left, Work
from rowmill.forecast.probe import Probe
from rowmill.outcomes import Outcomes
from rowmill.pipeline import Window

MANY_ROWS = 1 << 20


class Pacing:
    """See the module."""

    def __init__(
        self, opened: Opened, *, probe: Probe | None, tell: Callable[[str], None]
    ) -> None:
        """Begin.

        Args:
            probe: what trials learnt of answers.
        """
        self.probe = probe
        self._left = Left(probe.learned if probe is not None else None)
        # Vectors have no length.
        has_lengths = opened.words.job.kind != "embed"
        self._drift = Drift(opened.cut.most_rows) if has_lengths else None
        self._tell = tell
        self._lock = threading.Lock()

    def enter(self, window: Window) -> None:
        """A window's rows are about to be asked."""
        num_rows = window.num_rows
        with self._lock:
            for batch in window.plan.batches(MANY_ROWS):
                asked = asked_of(batch)
                self._left.enter(batch.keys, asked, num_rows)
                num_rows = 0
                if self._drift is not None:
                    self._drift.sent(batch.keys, asked)
            if num_rows:
                self._left.skip(num_rows)

    def through(self, put: Callable[[Outcomes], None]) -> Callable[[Outcomes], None]:
        """A way for outcomes past here."""

        def put_and_look(outcomes: Outcomes) -> None:
            put(outcomes)
            self.answered(outcomes)

        return put_and_look

    def answered(self, outcomes: Outcomes) -> None:
        """Rows came back from the engine."""
        with self._lock:
            self._left.answered(outcomes)
            alarm = self._drift.answered(outcomes) if self._drift is not None else None
            if alarm is None:
                return
            before = self._left.work(0)
            self._left.changed(alarm.factor)
            now = self._left.work(0)
        self._tell(_sentence(alarm, before, now))

    def work(self, total_rows: int) -> Work:
        """How it stands, of so many rows in all."""
        with self._lock:
            return self._left.work(total_rows)


def _sentence(alarm: Alarm, before: Work, now: Work) -> str:
    longer = f"{alarm.factor:.1f} times as long" if alarm.factor > 1 else "shorter"
    if alarm.factor < 1:
        longer = f"{alarm.factor:.0%} as long"
    more = f"; what is planned takes {now.left / before.left - 1:+.0%}" if before.left else ""
    return (
        f"drift: since about row {alarm.since_row:,} of those asked, answers are about {longer} as those of like rows"
        f" before (seen at {alarm.at_row:,} answered){more}: the time and the cost that were said no longer hold"
    )
