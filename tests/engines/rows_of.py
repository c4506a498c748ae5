"""Rows for the engine tests: one token a byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rowmill.rows import Prompts, Sampling


def byte_prompts(
    texts: Sequence[str],
    *,
    first_key: int = 0,
    max_tokens: int = 16,
    sampling: Sequence[Sampling] = (),
) -> Prompts:
    """Prompts of these texts as bytes; `sampling` is one for all, or one a row."""
    parts = [text.encode() for text in texts]
    samplings = list(sampling) or [Sampling(temperature=0)]
    each = range(len(texts)) if len(samplings) > 1 else [0] * len(texts)
    return Prompts(
        keys=list(range(first_key, first_key + len(texts))),
        ids=np.frombuffer(b"".join(parts), np.uint8).astype(np.uint32),
        stops=np.cumsum([len(part) for part in parts], dtype=np.int64),
        max_tokens=[max_tokens] * len(texts),
        samplings=samplings,
        sampling_of=list(each),
        wires=[],
        wire_fields=[],
    )
