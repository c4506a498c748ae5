"""Text -> where its records end: lines here; CSV has its own.

Promises: what the records of a text are does not depend on the blocks it comes in.
Knows nothing of: files, shards.
Memory: none. Time: some GB/s.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

_NEWLINE = 10
_COUNT_BYTES = 1 << 18
"""Newlines are counted in pieces that stay in the cache of a core."""
_BACK_BYTES = 1 << 12
"""The last newline of a block is looked for from its end, in such steps."""


class Cutter(Protocol):
    """Finds where records end. Offsets are counted in what it was fed, from 0."""

    def feed(self, block: memoryview, /) -> tuple[int, int]:
        """Take the next bytes; they are others once it has returned.

        Returns: one past the last byte of the last complete record, and how many records are complete.
        """
        ...

    def finish(self) -> tuple[int, int]:
        """The same once the text has ended: what is left behind the last complete record is one as well."""
        ...


class LineCutter:
    """Lines end behind line feeds, the last one with the text."""

    def __init__(self) -> None:
        self._num_bytes = self._end = self._num_lines = 0

    def feed(self, block: memoryview, /) -> tuple[int, int]:
        newline = _last_newline(block)
        if newline >= 0:
            self._num_lines += _count_newlines(block)
            self._end = self._num_bytes + newline + 1
        self._num_bytes += len(block)
        return self._end, self._num_lines

    def finish(self) -> tuple[int, int]:
        return self._num_bytes, self._num_lines + (self._end < self._num_bytes)


def _last_newline(block: memoryview) -> int:
    for stop in range(len(block), 0, -_BACK_BYTES):
        begin = max(0, stop - _BACK_BYTES)
        found = bytes(block[begin:stop]).rfind(b"\n")
        if found >= 0:
            return begin + found
    return -1


def _count_newlines(block: memoryview) -> int:
    """Unlike `bytes.count`, as fast where lines are short."""
    array = np.frombuffer(block, np.uint8)
    pieces = range(0, len(array), _COUNT_BYTES)
    return sum(
        int(np.count_nonzero(array[at : at + _COUNT_BYTES] == _NEWLINE)) for at in pieces
    )
