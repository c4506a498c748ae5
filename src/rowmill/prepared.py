"""Prompts of a task, tokenised ahead <-> one file of the run, which lives until the task is committed.

Promises: ids are given only where the file was made under the same fingerprint and their block has its checksum;
whatever else lies there is as if nothing did. A file is bounded: rows behind its end are not in it.
Knows nothing of: who tokenises, what a fingerprint is made of.
Memory: written, one task up to the bound; read, the blocks that a window of rows lies in.

    MAGIC, length of the head (4 bytes), checksum of the head (16 bytes), head (JSON), block after block;
    of a block with R rows and T tokens: R keys (uint64), R ends (int64), T ids (uint32).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.record import Places
from rowmill.rows import Ids, Request
from rowmill.storage import Storage

MAGIC = b"rowmill ids 1\n"
BLOCK_TOKENS = 1 << 18
"""A block ends with the row that brings it to so many."""
MOST_BYTES = 128 * 2**20
"""Of one file."""
_FIXED = len(MAGIC) + 4 + 16
_HEAD_BYTES = 1 << 15
"""Read at first: the fixed part and the heads of all but a few files."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Where some rows lie."""

    first: int
    """Lowest key."""
    last: int
    num_rows: int
    start: int
    """First byte, counted from behind the head."""
    stop: int
    checksum: str


class Head(msgspec.Struct, frozen=True):
    """What stands at the beginning of a file."""

    fingerprint: str
    task: int
    blocks: list[Block]


class _Found(msgspec.Struct, frozen=True):
    """A file that can be used: where its first block begins, and what there is."""

    start: int
    blocks: list[Block]


class Draft:
    """A file in the making."""

    def __init__(self, task: int, fingerprint: str, *, most_bytes: int = MOST_BYTES) -> None:
        self._task, self._fingerprint, self._most = task, fingerprint, most_bytes
        self._blocks: list[Block] = []
        self._bodies: list[bytes] = []
        self._keys: list[int] = []
        self._rows: list[Ids] = []
        self._tokens = self._num_bytes = 0
        self.is_full = False
        """Whether the bound is reached: further rows are left out."""

    def add(self, key: int, ids: Ids) -> None:
        """Take one row, where there is room left."""
        if self.is_full:
            return
        self._keys.append(key)
        self._rows.append(ids)
        self._tokens += len(ids)
        if self._tokens >= BLOCK_TOKENS:
            self._close_block()

    def keep(self, storage: Storage) -> int:
        """Write the file. Returns: its size; 0 where there is nothing to write, or one lies there.

        Raises: StorageError.
        """
        self._close_block()
        if not self._blocks:
            return 0
        head = msgspec.json.encode(Head(self._fingerprint, self._task, self._blocks))
        fixed = MAGIC + struct.pack("<I", len(head)) + xxhash.xxh3_128_digest(head)
        content = b"".join([fixed, head, *self._bodies])
        # What a power cut takes is made again.
        kept = storage.create(rundir.prepared(self._task), content, durable=False)
        return len(content) if kept else 0

    def _close_block(self) -> None:
        if not self._keys:
            return
        stops = np.cumsum(np.fromiter(map(len, self._rows), np.int64, len(self._rows)))
        keys = np.array(self._keys, np.uint64)
        ids = np.concatenate(self._rows).astype(np.uint32, copy=False)
        body = keys.tobytes() + stops.tobytes() + ids.tobytes()
        first, last, num_rows = min(self._keys), max(self._keys), len(self._keys)
        self._keys, self._rows, self._tokens = [], [], 0
        start, stop = self._num_bytes, self._num_bytes + len(body)
        if stop > self._most:
            self.is_full = True
            return
        checksum = xxhash.xxh3_128_hexdigest(body)
        self._blocks.append(Block(first, last, num_rows, start, stop, checksum))
        self._bodies.append(body)
        self._num_bytes = stop


class Prepared:
    """The files of one run, for who measures its rows."""

    def __init__(self, storage: Storage, places: Places, fingerprint: str) -> None:
        self._storage, self._places, self._fingerprint = storage, places, fingerprint
        self._found: dict[int, _Found] = {}

    def ids_of(self, requests: Sequence[Request]) -> dict[int, Ids]:
        """Token ids by key, of rows of a window as far as they lie there; some of its neighbours may be with them."""
        keys = np.fromiter((request.key for request in requests), np.uint64, len(requests))
        tasks = self._places.tasks_of(keys)
        old, self._found = self._found, {}
        ids: dict[int, Ids] = {}
        for task in np.unique(tasks).tolist():
            # One that is not there yet may be with the next window.
            found = old.get(task) or self._look(task)
            if found is not None:
                self._found[task] = found
                mine = keys[tasks == task]
                ids.update(self._rows(task, found, int(mine.min()), int(mine.max())))
        return ids

    def _look(self, task: int) -> _Found | None:
        try:
            begin = self._storage.read_range(rundir.prepared(task), 0, _HEAD_BYTES)
            if len(begin) < _FIXED or not begin.startswith(MAGIC):
                return None
            (length,) = struct.unpack_from("<I", begin, len(MAGIC))
            stop = _FIXED + length
            if stop > len(begin):
                begin = self._storage.read_range(rundir.prepared(task), 0, stop)
        except StorageError:
            return None
        raw = begin[_FIXED:stop]
        if xxhash.xxh3_128_digest(raw) != begin[_FIXED - 16 : _FIXED]:
            return None
        try:
            head = msgspec.json.decode(raw, type=Head)
        except msgspec.MsgspecError:
            return None
        is_ours = head.fingerprint == self._fingerprint and head.task == task
        return _Found(stop, head.blocks) if is_ours else None

    def _rows(self, task: int, found: _Found, low: int, high: int) -> Iterator[tuple[int, Ids]]:
        for block in found.blocks:
            if block.last < low or block.first > high:
                continue
            start, stop = found.start + block.start, found.start + block.stop
            try:
                body = self._storage.read_range(rundir.prepared(task), start, stop)
            except StorageError:
                return
            if xxhash.xxh3_128_hexdigest(body) == block.checksum:
                yield from _unpacked(body, block.num_rows)


def _unpacked(body: bytes, num_rows: int) -> Iterator[tuple[int, Ids]]:
    keys = np.frombuffer(body, np.uint64, num_rows)
    stops: npt.NDArray[np.int64] = np.frombuffer(body, np.int64, num_rows, 8 * num_rows)
    ids: Ids = np.frombuffer(body, np.uint32, offset=16 * num_rows)
    start = 0
    for key, stop in zip(keys.tolist(), stops.tolist(), strict=True):
        yield key, ids[start:stop]
        start = stop


def remove_all(storage: Storage) -> None:
    """Remove the files of all tasks.

    Raises: StorageError.
    """
    for name in storage.list(rundir.PREPARED):
        storage.remove(name)
