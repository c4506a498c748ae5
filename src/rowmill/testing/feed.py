"""A feed that gives the steps of a script, each when all rows of the one before are answered."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator

import numpy as np

from rowmill.rows import Outcome, Prompts
from rowmill.testing.broken import require

_NONE_NOW = Prompts([], np.empty(0, np.uint32), np.empty(0, np.int64), [], [], [], [], [])

Script = Generator[tuple[list[Prompts], bool], list[Outcome], None]
"""Yields the batches of a step, and whether the feed ends right behind them; is sent the step's outcomes."""


class ScriptedFeed:
    """See `protocol.Feed`. An engine that waits for a full house, or for the end, before it answers stands still with it."""

    def __init__(self, script: Script, *, patience_s: float) -> None:
        self._script = script
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._batches: deque[Prompts] = deque()
        self._given: set[int] = set()
        self._open: set[int] = set()
        self._outcomes: list[Outcome] = []
        self._is_last = self._has_ended = False
        self.num_waited_for = 0
        """Rows that the engine held and did not answer while it waited for more."""
        self._advance([])

    @property
    def is_done(self) -> bool:
        """Whether the engine was told that no more will come, and had answered all."""
        return self._has_ended and not self._open and self._is_last

    def take(self, *, wait: bool) -> Prompts | None:
        """See `protocol.Feed`. To an engine that waits for more and answers none of its rows it says that no more will come:
        the thread that asks is the engine's, and may end without a word."""
        with self._changed:
            if wait and not self._changed.wait_for(self._has_news, self._patience_s):
                self.num_waited_for = len(self._open)
                return None
            if self._batches:
                prompts = self._batches.popleft()
                self._open.update(prompts.keys)
                return prompts
            if self._is_last:
                self._has_ended = True
                return None
            return _NONE_NOW

    def answered(self, outcomes: list[Outcome]) -> None:
        """Note rows as answered; the last one of a step brings the next step.

        Raises:
            BrokenContract: An outcome is of no row that is open, or the step's outcomes break a promise.
        """
        self.check_flow()
        with self._changed:
            for outcome in outcomes:
                key = outcome.key
                require(key in self._given, "once", f"an outcome came for key {key}, not given")
                require(key in self._open, "once", f"key {key} got more than one outcome")
                self._open.discard(key)
            self._outcomes += outcomes
            if not self._open and not self._batches:
                self._advance(self._outcomes)
            self._changed.notify_all()

    def check_flow(self) -> None:
        """See that the engine did not wait for more before it answered.

        Raises:
            BrokenContract: It did.
        """
        words = f"it waits for rows without answering {self.num_waited_for} that it took"
        require(not self.num_waited_for, "flow", words)

    def _has_news(self) -> bool:
        return bool(self._batches) or self._is_last

    def _advance(self, outcomes: list[Outcome]) -> None:
        self._outcomes = []
        try:
            batches, is_last = (
                self._script.send(outcomes) if self._given else next(self._script)
            )
        except StopIteration:
            return
        self._batches.extend(batches)
        self._given = {key for batch in batches for key in batch.keys}
        self._is_last = is_last
