"""What the parts of a benchmark tell each other, as frozen records.

Knows nothing of: processes, files.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Work(msgspec.Struct, frozen=True):
    """One file of a workload, and what is in it."""

    path: str
    rows: int
    prompt_tokens: int
    output_tokens: int


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of contenders opens."""

    model: str
    tokenizer: str
    """Folder with tokenizer.json."""
    engine: str
    """Name of rowmill's engine; contenders other than rowmill are vLLM's."""
    settings: dict[str, Any]
    """Engine settings by vLLM's names, or by those of another engine of rowmill."""
    folder: str
    """Where logs go."""
    is_profiled: bool = False


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Parent to child: answer this file. A `name` that is empty: close and end."""

    name: str = ""
    work: Work | None = None
    out: str = ""
    """Place for answers that does not exist yet; its name may get an ending."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child to parent: the engine is open, and what it is like."""

    about: dict[str, Any]


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child to parent: one file answered."""

    seconds: float
    rows: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    invalid: str = ""
    """Why the run does not count; empty where it does."""
    profile: dict[str, Any] | None = None
    contender: str = ""
    """These two are the parent's to fill in."""
    round: int = 0


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Child to parent: it cannot be opened, or a run ended with an exception."""

    reason: str


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """An open process of contenders, for the record."""

    contenders: tuple[str, ...]
    start_s: float
    gpu_bytes: int
    """Memory that the GPUs lost by its start; 0 without GPUs."""
    about: dict[str, Any]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All of one table."""

    title: str
    workload: str
    work: Work | None
    """Of the first round; other rounds differ by their seed."""
    seeds: list[int]
    settings: dict[str, Any]
    residents: list[Resident]
    runs: list[Run]
    stopped: str = ""
    """Why it ended before its last round."""
    failed: dict[str, str] = {}
    """Contender -> why it took no part, or no longer."""
