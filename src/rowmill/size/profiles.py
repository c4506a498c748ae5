"""What is usual for batches, for rows that are wanted soon, and for rows that somebody waits for.

Promises: numbers with their usual ranges; the choice within them is ours.
Knows nothing of: jobs, engines' names for settings.
Source: ranges that articles and users of vLLM give; of batches vLLM's own defaults for large GPUs are taken.
"""

from __future__ import annotations

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """One way to run."""

    seats: int | None
    """None: the engine's own."""
    step_tokens: int | None
    memory_share: float | None
    ahead_s: float
    """So long rows may wait before the engine."""
    usual: str


PROFILES = {
    "batch": Profile(
        None,
        None,
        None,
        2.0,
        "512 to 2,048 seats, 8,192 to 32,768 tokens a step, 0.92 to 0.95 of the memory",
    ),
    "nearline": Profile(
        256,
        8192,
        0.90,
        1.0,
        "128 to 512 seats, 4,096 to 8,192 tokens a step, 0.90 of the memory",
    ),
    "online": Profile(
        128,
        4096,
        0.88,
        0.25,
        "64 to 256 seats, 2,048 to 8,192 tokens a step, 0.85 to 0.90 of the memory",
    ),
}
DEADLINE_S = 30.0
"""Of `nearline`, where none is set."""
