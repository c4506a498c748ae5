"""Commits -> their outcome lines, in key order or in the order in which rows were answered.

Promises: of commits that overlap each line comes once and in order.
Knows nothing of: the source.
Memory: a few thousand lines; one task in completion order.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np

from rowmill.journal import Commit
from rowmill.outcomes import key_of
from rowmill.storage import NotThere, Storage
from rowmill.write.segments import check_segment, read_lines_from, read_lines_of

MERGED_ROWS = 2048
MERGED_BYTES, LEAST_BYTES = 16 * 2**20, 16 * 2**10
"""Held of all commits that are merged, and of one at least."""


class OutcomeLines:
    """Lists of lines, taken in other lengths than they come in."""

    def __init__(self, parts: Iterator[list[bytes]]) -> None:
        self._parts, self._held, self._at = parts, list[bytes](), 0

    def take(self, rows: int) -> list[bytes]:
        """The next `rows` lines; fewer at the end."""
        while (
            len(self._held) - self._at < rows and (part := next(self._parts, None)) is not None
        ):
            self._held = self._held[self._at :] + part
            self._at = 0
        taken = self._held[self._at : self._at + rows]
        self._at += len(taken)
        return taken

    def take_below(self, key: int, rows: int) -> list[bytes]:
        """The next lines of keys below `key`, at most `rows`; none where there is none."""
        lines = self.take(rows)
        number = bisect.bisect_left(lines, key, key=key_of)
        self._at -= len(lines) - number
        return lines[:number]


def merged(
    storage: Storage, commits: Sequence[Commit], first_key: int
) -> Iterator[list[bytes]]:
    """Outcome lines of all commits in key order, from `first_key` on.

    Commits whose key ranges do not overlap are read one after the other; only those that do are merged.
    """
    runs: list[Commit] = []
    end = -1
    for commit in sorted(commits, key=lambda c: c.first_key):
        if runs and commit.first_key > end:
            yield from _merge(storage, runs, first_key)
            runs = []
        runs.append(commit)
        end = max(end, commit.last_key)
    yield from _merge(storage, runs, first_key)


def lines_of(storage: Storage, commit: Commit) -> list[bytes]:
    """All lines of a commit, in key order."""
    return list(chain.from_iterable(_stream(storage, commit, 0)))


def arrival(storage: Storage, commit: Commit, rows: int) -> list[int]:
    """Places in key order of a commit's rows, in the order in which they were answered."""
    if commit.arrival:
        try:
            ranks = np.frombuffer(storage.read(commit.arrival), "<u4")
        except NotThere:
            # A power cut may undo that file; the order of the input is as good a one as any.
            ranks = np.empty(0, "<u4")
        if len(ranks) == rows:
            return [int(rank) for rank in ranks]
    return list(range(rows))


def by_completion(commits: Sequence[Commit]) -> list[Commit]:
    """Commits with rows, the one that was made first in front."""
    return sorted((c for c in commits if c.num_rows), key=lambda c: (c.finished, c.task))


def _merge(
    storage: Storage, commits: Sequence[Commit], first_key: int
) -> Iterator[list[bytes]]:
    if len(commits) == 1:
        yield from _stream(storage, commits[0], first_key)
        return
    yield from merged_with(storage, commits, [], first_key)


def merged_with(
    storage: Storage,
    commits: Sequence[Commit],
    others: Sequence[Iterator[list[bytes]]],
    first_key: int = 0,
) -> Iterator[list[bytes]]:
    """Lines of commits from a key on, and others in key order, in key order; see `check_merged`."""
    piece = max(LEAST_BYTES, MERGED_BYTES // max(len(commits), 1))
    refs = [ref for commit in commits for ref in commit.segments]
    streams = [read_lines_from(storage, ref, first_key, piece_bytes=piece) for ref in refs]
    rows = heapq.merge(*map(chain.from_iterable, [*streams, *others]), key=key_of)
    while part := list(islice(rows, MERGED_ROWS)):
        yield part


def has_line(storage: Storage, commit: Commit, key: int) -> bool:
    """Whether a commit has an outcome of a row."""
    streams = (read_lines_from(storage, ref, key) for ref in commit.segments)
    firsts = (next(chain.from_iterable(stream), b"") for stream in streams)
    return any(key_of(line) == key for line in firsts if line)


def check_merged(storage: Storage, commits: Sequence[Commit]) -> None:
    """See that commits which are merged are what they were: who reads them from somewhere on cannot.

    Raises: StorageError.
    """
    for commit in commits:
        for ref in commit.segments:
            check_segment(storage, ref)


def _stream(storage: Storage, commit: Commit, first_key: int) -> Iterator[list[bytes]]:
    for ref in commit.segments:
        for lines in read_lines_of(storage, ref):
            if commit.first_key < first_key:
                yield [line for line in lines if key_of(line) >= first_key]
            else:
                yield lines
