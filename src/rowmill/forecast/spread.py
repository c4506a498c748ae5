"""Texts, window by window -> how much of what rows share windows do not see, because it lies too far apart.

Promises: tells it of all rows that were added; nothing is tokenised: 64 bytes of text stand for a block of 16 tokens.
Knows nothing of: orders, engines.
Memory: one window, and the count of distinct blocks (blocks.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rowmill.forecast.blocks import BLOCK, Distinct, block_hashes, different
from rowmill.plan import Lever
from rowmill.plan.arrange import MIN_SAVED_SHARE, prompt_text
from rowmill.rows import Request

NAME = "whole input"


class Spread:
    """What is shared over the whole input, against what windows see of it."""

    def __init__(self) -> None:
        self.rows = 0
        self._words = 0
        """Four bytes each, a token about."""
        self._blocks = 0
        """Of all rows: what might be found in a cache."""
        self._near = 0
        """Blocks that differ, window by window."""
        self._distinct = Distinct()

    def add(self, requests: Sequence[Request]) -> None:
        """One window."""
        if not requests:
            return
        texts = [prompt_text(request).encode(errors="surrogatepass") for request in requests]
        padded = [text + b"\0" * (-len(text) % 4) for text in texts]
        stops = np.cumsum([len(text) // 4 for text in padded], dtype=np.int64)
        words = np.frombuffer(b"".join(padded), "<u4").astype(np.uint32, copy=False)
        hashes, _ = block_hashes(words, stops)
        fresh = different(hashes)
        self.rows += len(requests)
        self._words += len(words)
        self._blocks += len(hashes)
        self._near += len(fresh)
        self._distinct.add(fresh)

    @property
    def share(self) -> float:
        """Of the prompts, what a window computes though an earlier one has: none is taken to be in the cache still."""
        return self._part(self._near - self._distinct.count())

    @property
    def near_share(self) -> float:
        """Of the prompts, what is found within their window."""
        return self._part(self._blocks - self._near)

    def _part(self, blocks: int) -> float:
        return max(0.0, BLOCK * blocks / self._words) if self._words else 0.0

    def verdict(self) -> Lever:
        """Whether to sort the whole input."""
        if self.share < MIN_SAVED_SHARE:
            told = (
                f"no gain here: windows see {self.near_share:.0%} of the prompts shared,"
                f" the whole input has {self.near_share + self.share:.0%}"
            )
            return Lever(name=NAME, is_used=False, reason=told)
        return Lever(
            name=NAME,
            is_used=True,
            reason=(
                f"rows that begin alike stand far apart: windows see {self.near_share:.0%} of the prompts shared,"
                f" the whole input has {self.near_share + self.share:.0%}"
            ),
            saved_tokens=int(self.share * self._words),
        )
