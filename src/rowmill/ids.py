"""Ids -> pairs of rows that share one: finds repeated ids among more rows than fit a dict.

Promises: every row whose id an earlier row had is told, with the first row that had it;
no row is told for a hash that two ids share. Adding the same rows again tells nothing new.
Knows nothing of: where ids come from, what is done with rows that repeat one.
Memory: 16 bytes an id (a 64-bit hash and the row's key), an eighth of that beside it while runs
are merged, and about 20 MB for recent ids.
Time: under 1 us an id, and one call of `confirm` for an id that comes back after
`RECENT_IDS` others.
Source: the log-structured merge tree (O'Neil et al., Acta Informatica 33, 1996), in memory.
Not safe for use by several threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

RECENT_IDS = 1 << 16
RECENT_BYTES = 16 << 20
"""Ids can be long: the recent ones are also bounded by their bytes."""
NUM_RANGES = 8
"""Runs are held in ranges of the hash: merging needs an eighth of their bytes beside them."""
MERGE_RATIO = 3
"""A run is merged into the older one before it where that is less than so many times larger."""

U64 = npt.NDArray[np.uint64]

_RANGE_STARTS = np.arange(1, NUM_RANGES, dtype=np.uint64) << np.uint64(61)


class SeenIds:
    """The ids of all rows so far."""

    def __init__(
        self,
        confirm: Callable[[int], bytes],
        *,
        hash_id: Callable[[bytes], int] = xxhash.xxh3_64_intdigest,
    ) -> None:
        """Begin with none.

        Args:
            confirm: gives the id of a row by its key, spelt as it was added. Two ids can share
                a hash, and ids are not kept: equal hashes are settled by asking for the first
                row's id. Keys of one `add` are asked for in rising order.
            hash_id: 64 bits of an id.
        """
        self._confirm = confirm
        self._hash_id = hash_id
        self._recent: dict[bytes, int] = {}
        """Ids of late, with the first row of each; also those that were confirmed of late."""
        self._recent_bytes = 0
        self._unsorted: list[tuple[U64, U64]] = []
        """Hashes and keys that are in `_recent` and in no run yet."""
        self._runs: list[_Run] = []
        """Oldest and largest first."""

    def add(self, ids: Sequence[bytes], keys: Sequence[int]) -> list[tuple[int, int]]:
        """Take in rows, and tell which have an id that was there before.

        Args:
            ids: an empty one stands for a row without an id and is left out.
            keys: of the rows, one an id.
        Returns: (key, key of the first row with that id), in the order given.
        """
        recent = self._recent
        fresh = dict(zip(ids, keys, strict=True))
        # most batches repeat nothing, and are spared a loop over their rows
        repeats = len(fresh) < len(ids) or b"" in fresh or not recent.keys().isdisjoint(fresh)
        if repeats:
            backwards = zip(reversed(ids), reversed(keys), strict=True)
            fresh = {id_: key for id_, key in backwards if id_ and id_ not in recent}
        repeats |= self._take_in(fresh)
        pairs = []
        if repeats:
            pairs = [
                (key, first)
                for id_, key in zip(ids, keys, strict=True)
                if id_ and (first := recent[id_]) != key
            ]
        if len(recent) >= RECENT_IDS or self._recent_bytes >= RECENT_BYTES:
            self._flush()
        return pairs

    def holds(self, ids: Sequence[bytes]) -> list[bool]:
        """Whether each id may be among them; nothing is confirmed, so an id of an equal hash counts."""
        hashes = np.fromiter(map(self._hash_id, ids), np.uint64, len(ids))
        order = np.argsort(hashes)
        alike = {order[at] for run in self._runs for at, _ in run.find(hashes[order])}
        return [id_ in self._recent or at in alike for at, id_ in enumerate(ids)]

    def _take_in(self, fresh: dict[bytes, int]) -> bool:
        """Put ids that are not among the recent ones there, with the first row of each.

        Returns: whether one of them may be older.
        """
        hashes = np.fromiter(map(self._hash_id, fresh), np.uint64, len(fresh))
        keys = np.fromiter(fresh.values(), np.uint64, len(fresh))
        order = np.argsort(hashes)
        hashes, keys = hashes[order], keys[order]
        alike = [pair for run in self._runs for pair in run.find(hashes)]
        if alike:
            is_new = self._settle(fresh, order, alike)
            hashes, keys = hashes[is_new], keys[is_new]
        self._recent.update(fresh)
        self._recent_bytes += sum(map(len, fresh))
        if len(hashes):
            self._unsorted.append((hashes, keys))
        return bool(alike)

    def _settle(
        self, fresh: dict[bytes, int], order: npt.NDArray[np.intp], alike: list[tuple[int, int]]
    ) -> npt.NDArray[np.bool_]:
        """Of ids whose hash is in a run, find those that are there themselves.

        Returns: for each position in `order`, whether its id is new; in `fresh`, the others
            have their first row's key afterwards.
        """
        ids = list(fresh)
        is_new = np.ones(len(ids), np.bool_)
        for position, first in sorted(alike, key=lambda pair: pair[1]):
            id_ = ids[order[position]]
            if self._confirm(first) == id_:
                fresh[id_] = first
                is_new[position] = False
        return is_new

    def _flush(self) -> None:
        """Make a run of what is recent, and merge runs of like size."""
        if self._unsorted:
            hashes = np.concatenate([hashes for hashes, _ in self._unsorted])
            keys = np.concatenate([keys for _, keys in self._unsorted])
            order = np.argsort(hashes, kind="stable")
            self._runs.append(_Run(hashes[order], keys[order]))
        self._unsorted.clear()
        self._recent.clear()
        self._recent_bytes = 0
        runs = self._runs
        while len(runs) > 1 and runs[-2].size < MERGE_RATIO * runs[-1].size:
            runs[-2].absorb(runs.pop())


class _Run:
    """Sorted hashes with the keys of their rows, a pair of arrays for each range of the hash."""

    def __init__(self, hashes: U64, keys: U64) -> None:
        self.size = len(hashes)
        cuts = np.searchsorted(hashes, _RANGE_STARTS)
        # copies: a view would keep the whole array while its neighbours are merged
        self._hashes = [part.copy() for part in np.split(hashes, cuts)]
        self._keys = [part.copy() for part in np.split(keys, cuts)]

    def find(self, wanted: U64) -> Iterator[tuple[int, int]]:
        """(position in `wanted`, key) wherever the run has an equal hash; `wanted` is sorted."""
        cuts = [0, *np.searchsorted(wanted, _RANGE_STARTS).tolist(), len(wanted)]
        for at, hashes in enumerate(self._hashes):
            part = wanted[cuts[at] : cuts[at + 1]]
            if not len(part) or not len(hashes):
                continue
            places = np.searchsorted(hashes, part)
            found = np.flatnonzero(hashes[np.minimum(places, len(hashes) - 1)] == part)
            for position in found.tolist():
                yield from self._equal(at, int(places[position]), cuts[at] + position)

    def _equal(self, at: int, place: int, position: int) -> Iterator[tuple[int, int]]:
        hashes, keys = self._hashes[at], self._keys[at]
        wanted = hashes[place]
        while place < len(hashes) and hashes[place] == wanted:
            yield position, int(keys[place])
            place += 1

    def absorb(self, newer: _Run) -> None:
        """Merge another run into this one, a range at a time; it is used up."""
        self.size += newer.size
        for at in range(NUM_RANGES):
            more_hashes, more_keys = newer._hashes[at], newer._keys[at]
            places = np.searchsorted(self._hashes[at], more_hashes, side="right")
            places += np.arange(len(places))
            is_old = np.ones(len(self._hashes[at]) + len(places), np.bool_)
            is_old[places] = False
            self._hashes[at] = _woven(self._hashes[at], more_hashes, places, is_old)
            self._keys[at] = _woven(self._keys[at], more_keys, places, is_old)
            newer._hashes[at] = newer._keys[at] = more_hashes[:0].copy()


def _woven(
    old: U64, new: U64, places: npt.NDArray[np.intp], is_old: npt.NDArray[np.bool_]
) -> U64:
    both = np.empty(len(is_old), np.uint64)
    both[places] = new
    both[is_old] = old
    return both
