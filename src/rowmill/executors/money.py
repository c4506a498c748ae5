"""Prices of a job -> what it costs so far, and what its rest will.

Knows nothing of: clocks, engines.
"""

from __future__ import annotations

import msgspec


class Money(msgspec.Struct, frozen=True):
    """What a run costs, at the prices of `[run]`."""

    so_far: float = 0.0
    an_hour: float = 0.0
    """Of all its GPUs."""
    prompt_million: float = 0.0
    output_million: float = 0.0

    def of_tokens(self, prompts: float, outputs: float) -> float:
        """What an endpoint asks for so many."""
        return (prompts * self.prompt_million + outputs * self.output_million) / 1e6
