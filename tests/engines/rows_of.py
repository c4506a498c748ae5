"""Rows for the engine tests: of texts, one token a byte, and of token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rowmill.rows import Ids, Prompts, Sampling


def byte_prompts(
    texts: Sequence[str],
    *,
    first_key: int = 0,
    max_tokens: int = 16,
    sampling: Sequence[Sampling] = (),
) -> Prompts:
    """Prompts of these texts as bytes; `sampling` is one for all, or one a row."""
    parts = [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]
    return id_prompts(parts, first_key=first_key, max_tokens=max_tokens, sampling=sampling)


def id_prompts(
    rows: Sequence[Ids | list[int]],
    *,
    first_key: int = 0,
    max_tokens: int | list[int] = 16,
    sampling: Sequence[Sampling] = (),
) -> Prompts:
    """Prompts of these token ids; `sampling` and `max_tokens` are one for all, or one a row."""
    samplings = list(sampling) or [Sampling(temperature=0)]
    each = range(len(rows)) if len(samplings) > 1 else [0] * len(rows)
    parts = [np.asarray(row, np.uint32) for row in rows]
    return Prompts(
        keys=list(range(first_key, first_key + len(rows))),
        ids=np.concatenate([np.empty(0, np.uint32), *parts]),
        stops=np.cumsum([len(row) for row in rows], dtype=np.int64),
        max_tokens=[max_tokens] * len(rows) if isinstance(max_tokens, int) else max_tokens,
        samplings=samplings,
        sampling_of=list(each),
        wires=[],
        wire_fields=[],
    )
