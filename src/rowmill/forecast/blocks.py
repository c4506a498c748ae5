"""Token ids -> what rows share: chained hashes of blocks of 16 tokens, as vLLM's prefix cache has them.

Promises: two rows have a block in common exactly if they are equal up to its end (but for one chance in 2^40);
what all rows have in common and what neighbours have is counted in whole blocks.
Knows nothing of: pools, orders.
Memory: eight bytes a block of a window; of earlier windows `MOST_KEPT` hashes at most.
Source: vLLM 0.33, `v1/core/kv_cache_utils.py`: the last token of a prompt is always computed, so a prompt of p tokens has
(p - 1) // 16 blocks that may be found; adaptive sampling (Flajolet 1990) for the count of distinct ones.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rowmill.rows import Ids

BLOCK = 16
MOST_KEPT = 1 << 22
"""Hashes that are kept; of more, those that an even choice leaves."""
SIGMAS = 3

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
_DRAW = np.random.default_rng(20240607)
_FACTORS = _DRAW.integers(1, 1 << 63, BLOCK, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def num_blocks(lengths: Counts) -> Counts:
    """Blocks of each prompt that may be found in the cache."""
    return np.maximum(lengths - 1, 0) // BLOCK


def block_hashes(ids: Ids, stops: Counts) -> tuple[Hashes, Counts]:
    """Chained hashes of all whole blocks.

    Shapes: `ids` T, `stops` R; returns B hashes, row by row, and R stops into them.
    """
    starts = np.concatenate(([0], stops[:-1])).astype(np.int64)
    blocks = num_blocks(stops - starts)
    ends = np.cumsum(blocks)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return np.empty(0, np.uint64), ends
    depth = np.arange(total) - np.repeat(ends - blocks, blocks)
    at = np.repeat(starts, blocks) + BLOCK * depth
    own = np.zeros(total, np.uint64)
    for i in range(BLOCK):
        own += (ids[at + i].astype(np.uint64) + np.uint64(1)) * _FACTORS[i]
    return _chained(_mixed(own), depth, int(blocks.max())), ends


def _chained(own: Hashes, depth: Counts, deepest: int) -> Hashes:
    """Each block's hash with those before it in its row: all rows at one depth at once."""
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(deepest + 1))
    chained = own.copy()
    for level in range(1, deepest):
        here = order[bounds[level] : bounds[level + 1]]
        chained[here] = _mixed(chained[here - 1] * _STEP + own[here])
    return chained


def _mixed(values: Hashes) -> Hashes:
    values = values ^ (values >> np.uint64(31))
    values = values * np.uint64(0xBF58476D1CE4E5B9)
    return values ^ (values >> np.uint64(29))


def different(hashes: Hashes) -> Hashes:
    """Each hash once, in order. `np.unique` hashes them once more: 30 times slower, measured on 40,000."""
    if not len(hashes):
        return hashes
    in_order = np.sort(hashes)
    found: Hashes = in_order[np.concatenate(([True], in_order[1:] != in_order[:-1]))]
    return found


class Distinct:
    """How many different hashes there were: exact up to `MOST_KEPT`, then of those that end in so many zeros, as many times."""

    def __init__(self) -> None:
        self._kept: list[Hashes] = []
        self._num_kept = 0
        self._bits = 0
        """A hash is kept where so many bits of its mix are 0."""

    def add(self, hashes: Hashes) -> None:
        """Count these in."""
        fresh = different(self._chosen(hashes))
        self._kept.append(fresh)
        self._num_kept += len(fresh)
        if self._num_kept > MOST_KEPT:
            self._keep(different(np.concatenate(self._kept)))
            # Half of the room at most stays taken, so that not every window brings a sort of all.
            while self._num_kept > MOST_KEPT // 2:
                self._bits += 1
                self._keep(self._chosen(self._kept[0]))

    def count(self) -> int:
        """About so many were different: within one in a thousand, mostly."""
        return self._num_different() << self._bits

    def at_least(self) -> int:
        """So many were different, but for one chance in a thousand."""
        kept = self._num_different()
        if not self._bits:
            return kept
        return max(0, int(kept - SIGMAS * kept**0.5)) << self._bits

    def _num_different(self) -> int:
        if len(self._kept) > 1:
            self._keep(different(np.concatenate(self._kept)))
        return self._num_kept

    def _keep(self, hashes: Hashes) -> None:
        self._kept, self._num_kept = [hashes], len(hashes)

    def _chosen(self, hashes: Hashes) -> Hashes:
        if not self._bits:
            return hashes
        chosen: Hashes = hashes[(_mixed(hashes * _STEP) >> np.uint64(64 - self._bits)) == 0]
        return chosen


class Beginnings:
    """What rows of a window share, as runs of blocks that always come together.

    A row is a list of runs, then its own blocks; two rows share the runs that both lists begin with.
    """

    def __init__(self, hashes: Hashes, ends: Counts) -> None:
        """Find the runs.

        Shapes: as `block_hashes` returns them.
        """
        _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        shared = counts[inverse]
        self.runs: list[list[tuple[int, int]]] = []
        """Of each row, in order: (number of the run, its blocks)."""
        first = 0
        for end in ends.tolist():
            self.runs.append(_runs(inverse[first:end], shared[first:end]))
            first = end


def _runs(numbers: Counts, shared: Counts) -> list[tuple[int, int]]:
    """Blocks of one row that others have as well, cut where the number of those changes."""
    depth = int(np.searchsorted(-shared, -1))  # falls along a row; from here on it is alone
    if not depth:
        return []
    cuts = np.flatnonzero(np.diff(shared[:depth])) + 1
    bounds = [0, *cuts.tolist(), depth]
    return [(int(numbers[stop - 1]), stop - start) for start, stop in pairwise(bounds)]
