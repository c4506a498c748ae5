"""A contender's output -> whether it is complete, and its tokens.

Promises: every row of the input must be there once, answered, with as many tokens as were asked for.
Knows nothing of: engines, times.
Memory: the ids of a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rowmill.bench.records import Run, Work


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What matters of one answer."""

    id: str
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    is_ok: bool = True


Expected = Callable[[int, int], int]
"""(prompt tokens, max_tokens) -> tokens the answer must have."""


def as_asked(_prompt_tokens: int, max_tokens: int) -> int:
    """Engines that are told to go past the end token answer with all they may."""
    return max_tokens


def as_echoed(prompt_tokens: int, max_tokens: int) -> int:
    """`echo` has no more to say than it was told."""
    return min(prompt_tokens, max_tokens)


def checked(
    work: Work, answers: Iterable[Answer], seconds: float, *, expected: Expected = as_asked
) -> Run:
    """One run, with the reason why it does not count, if there is one."""
    asked = {row["id"]: row["max_tokens"] for row in lines_of(Path(work.path))}
    seen: set[str] = set()
    twice = foreign = failed = other = 0
    totals = [0, 0, 0]
    for answer in answers:
        twice += answer.id in seen
        seen.add(answer.id)
        if answer.id not in asked:
            foreign += 1
        elif not answer.is_ok:
            failed += 1
        else:
            other += answer.output_tokens != expected(answer.prompt_tokens, asked[answer.id])
        totals[0] += answer.prompt_tokens
        totals[1] += answer.output_tokens
        totals[2] += answer.cached_tokens
    faults = {
        "missing": len(asked.keys() - seen),
        "there twice": twice,
        "of ids nobody asked for": foreign,
        "failed": failed,
        "of another length than asked": other,
    }
    invalid = [f"{count:,} answers {what}" for what, count in faults.items() if count]
    if not invalid and totals[0] != work.prompt_tokens:
        invalid.append(f"{totals[0]:,} prompt tokens instead of {work.prompt_tokens:,}")
    return Run(
        seconds=seconds,
        rows=len(seen),
        prompt_tokens=totals[0],
        output_tokens=totals[1],
        cached_tokens=totals[2],
        invalid="; ".join(invalid),
    )


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSON Lines file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def plain_answers(path: Path) -> Iterator[Answer]:
    """What a contender of ours wrote itself."""
    for row in lines_of(path):
        yield Answer(
            row["id"], row["prompt_tokens"], row["output_tokens"], row["cached_tokens"]
        )


def batch_answers(path: Path) -> Iterator[Answer]:
    """What `vllm run-batch` wrote."""
    for row in lines_of(path):
        body = (row.get("response") or {}).get("body")
        if row.get("error") or not body:
            yield Answer(row["custom_id"], 0, 0, 0, is_ok=False)
            continue
        usage = body["usage"]
        details = usage.get("prompt_tokens_details") or {}
        yield Answer(
            row["custom_id"],
            usage["prompt_tokens"],
            usage["completion_tokens"],
            details.get("cached_tokens") or 0,
        )


def rowmill_answers(paths: Iterable[Path]) -> Iterator[Answer]:
    """What rowmill published."""
    for path in paths:
        for row in lines_of(path):
            yield Answer(
                row["id"],
                row["rowmill_prompt_tokens"],
                row["rowmill_output_tokens"],
                row["rowmill_cached_tokens"],
                row["rowmill_status"] == "ok",
            )
