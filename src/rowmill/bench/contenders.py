"""Names of contenders -> engines that are open, each ready to answer files.

Promises: contenders that can share an engine do: it is started once and has its memory once.
Knows nothing of: rounds, tables, who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from rowmill.bench.records import Run, Spec, Task

RESIDENTS: dict[str, tuple[str, ...]] = {
    "llm": ("generate", "sorted", "five_line"),
    "batch": ("run_batch",),
    "rowmill": ("rowmill",),
}
"""Process -> contenders that share its engine."""

BASELINE = "generate"
"""What ratios are told to."""

CONTENDERS: dict[str, str] = {
    "generate": "`LLM.generate` on texts in file order, a SamplingParams a row",
    "sorted": "the same, prompts sorted by text before",
    "five_line": "`tokenizers.encode_batch` on all cores, ids sorted, `LLM.generate` on ids",
    "run_batch": "the installed `vllm run-batch`, its own `main` with its engine open already",
    "rowmill": "`rowmill run` with its engines open already",
}
"""Name -> what it does."""


class Contender(Protocol):
    """An open engine and the contenders that share it."""

    about: dict[str, Any]
    """What it is like: settings as the engine took them, for the record."""

    def run(self, task: Task) -> Run:
        """Answer a file, as the contender that the task names."""
        ...

    def close(self) -> None:
        """End the engine."""
        ...


def resident_of(name: str) -> str:
    """The process that a contender lives in."""
    return next(key for key, members in RESIDENTS.items() if name in members)


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Process -> those of the named contenders that live in it."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(resident_of(name), []).append(name)
    return groups


def open_contender(resident: str, spec: Spec) -> Contender:
    """Open the engine of a process.

    Raises:
        ConfigError: its settings, its model or its library are not as they should be.
    """
    if resident == "llm":
        from rowmill.bench.vllm_llm import Llm

        return Llm(spec)
    if resident == "batch":
        from rowmill.bench.vllm_batch import Batch

        return Batch(spec)
    from rowmill.bench.ours import Ours

    return Ours(spec)
