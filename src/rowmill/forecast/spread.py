"""Texts, window by window -> how much of what rows share windows do not see, because it lies too far apart.

Promises: tells it of all rows that were added; nothing is tokenised: 64 bytes of text stand for a block of 16 tokens.
Knows nothing of: orders, engines.
Memory: one window, and the count of distinct blocks (blocks.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rowmill.forecast.blocks import Distinct, block_hashes
from rowmill.plan import Lever
from rowmill.plan.arrange import MIN_SAVED_SHARE, prompt_text
from rowmill.rows import Request

NAME = "whole input"


class Spread:
    """What is shared over the whole input, against what windows see of it."""

    def __init__(self) -> None:
        self.rows = 0
        self.blocks = 0
        self._near = 0
        """Blocks that differ, window by window."""
        self._windows = 0
        self._distinct = Distinct()

    def add(self, requests: Sequence[Request]) -> None:
        """One window."""
        if not requests:
            return
        texts = [prompt_text(request).encode(errors="surrogatepass") for request in requests]
        padded = [text + b"\0" * (-len(text) % 4) for text in texts]
        stops = np.cumsum([len(text) // 4 for text in padded], dtype=np.int64)
        words = np.frombuffer(b"".join(padded), "<u4").astype(np.uint32, copy=False)
        self.add_hashes(block_hashes(words, stops)[0], len(requests))

    def add_hashes(
        self, hashes: np.ndarray[tuple[int], np.dtype[np.uint64]], rows: int
    ) -> None:
        """The blocks of one window."""
        self.rows += rows
        self.blocks += len(hashes)
        self._windows += 1
        fresh = np.unique(hashes)
        self._near += len(fresh)
        self._distinct.add(fresh)

    @property
    def share(self) -> float:
        """Of all blocks, those that a window computes though an earlier one has: none is taken to be in the cache still."""
        if not self.blocks:
            return 0.0
        return max(0.0, (self._near - self._distinct.count()) / self.blocks)

    @property
    def near_share(self) -> float:
        """Of all blocks, those that are found within their window."""
        return 1 - self._near / self.blocks if self.blocks else 0.0

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
            saved_tokens=int(self.share * self.blocks * 16),
        )
