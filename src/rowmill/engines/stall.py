"""Signs of life of an engine -> whether it stands still: alive, with rows, and without progress for too long.

Promises: an engine without rows never stands still; how long quiet is allowed follows from what is in flight and from
how this engine was so far, unless it is given.
Knows nothing of: processes, channels. The clock is given, so tests own time.
Memory: a few numbers.

An engine that counts its steps shows progress within one row; of another an answer is the only sign, and it may come
as late as the longest row in flight takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_S = 120.0
"""Quiet that says nothing: a kernel is compiled in passing, a disk sleeps."""
FIRST_S = 600.0
"""Before the first sign: much is compiled with the first rows."""
FIRST_TOKEN_S = 1.0
"""A token of an answer may take so long where nothing is known yet: a large model on a small processor."""
FIRST_PROMPT_TOKEN_S = 0.05
ABSENT_S = 10.0
"""A look that comes so late says that this process was stopped itself, and saw nothing of what the engine did."""
SLACK = 10.0
"""So many times the longest quiet there was."""


class Watch:
    """Watches one engine. Fed by the thread that receives; rows may be sent by another."""

    def __init__(
        self, given_s: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._given_s, self._clock = given_s, clock
        self._since = self._looked_at = clock()
        self._steps = 0
        self._doubt = 1.0
        self._longest_quiet_s = self._pace_s = 0.0
        self._has_steps = self._has_answered = False

    @property
    def quiet_s(self) -> float:
        """How long there was no sign."""
        return self._clock() - self._since

    def begin(self) -> None:
        """The engine is open, gets rows after it had none, or shows a sign."""
        self._since = self._looked_at = self._clock()

    def restart(self) -> None:
        """Another process begins: its count of steps does, too."""
        self._steps = 0
        self.begin()

    def stepped(self, steps: int) -> None:
        """The engine says how many steps it has made so far."""
        if steps > self._steps:
            if self._steps:  # the first ones compile what later ones use
                self._longest_quiet_s = max(self._longest_quiet_s, self.quiet_s)
            self._has_steps, self._steps = True, steps
            self.begin()

    def answered(self, longest_tokens: int) -> None:
        """Answers came, of rows with at most so many tokens to generate."""
        self._has_answered = True
        if not self._has_steps:
            self._longest_quiet_s = max(self._longest_quiet_s, self.quiet_s)
        self._pace_s = max(self._pace_s, self.quiet_s / max(longest_tokens, 1))
        self.begin()

    def doubt(self) -> None:
        """It was ended for standing still: the next time it may have longer, should that have been wrong."""
        self._doubt *= 2

    def allowed_s(self, *, longest_tokens: int, prompt_tokens: int) -> float:
        """How long quiet may last.

        Args:
            longest_tokens: most tokens that a row in flight may generate.
            prompt_tokens: of all rows in flight.
        """
        if self._given_s is not None:
            return self._given_s
        allowed = max(LEAST_S, SLACK * self._longest_quiet_s)
        if self._has_steps:
            return self._doubt * allowed
        if self._has_answered:
            return self._doubt * max(allowed, SLACK * self._pace_s * longest_tokens)
        first = FIRST_S + FIRST_TOKEN_S * longest_tokens + FIRST_PROMPT_TOKEN_S * prompt_tokens
        return self._doubt * max(allowed, first)

    def stands_still(self, *, longest_tokens: int, prompt_tokens: int) -> bool:
        """Whether it had no sign for longer than is allowed; asked each second or so, while rows are in flight."""
        now = self._clock()
        if now - self._looked_at > ABSENT_S:
            self.begin()
        self._looked_at = now
        allowed = self.allowed_s(longest_tokens=longest_tokens, prompt_tokens=prompt_tokens)
        return self.quiet_s > allowed
