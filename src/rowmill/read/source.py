"""Files -> Shards: count the lines, take the digest, cut slices that can be read alone.

Promises: the shards of a file lie end to end from its first byte (behind a BOM) to its last;
every file has one at least; each ends behind a newline or with the file.
Knows nothing of: rows, JSON, the job.
Memory: one block (4 MiB) and a record a file and a shard. Time: one pass, over 1 GB/s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

import msgspec
import numpy as np
import xxhash

from rowmill.errors import BadSource
from rowmill.read.listing import Found, list_files
from rowmill.rows import Shard

MIN_SHARD_BYTES = 4 << 20
MAX_SHARD_BYTES = 64 << 20
WANTED_SHARDS = 4096
BLOCK_BYTES = 4 << 20

_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10
_COUNT_BYTES = 1 << 18
"""Newlines are counted in pieces that stay in the cache of a core."""


class SourceFile(msgspec.Struct, frozen=True):
    """One input file as it was when it was counted; stored with the run."""

    path: str
    name: str
    size: int
    mtime_ns: int
    digest: str
    """xxh3_128 of its bytes, in hex."""
    num_lines: int


class Source(msgspec.Struct, frozen=True):
    """The whole input: its files, and the slices it is read in."""

    files: list[SourceFile]
    shards: list[Shard]
    """In file order; `shards[i].index == i`."""
    notes: list[str] = []
    """What was passed over, for people."""

    @property
    def num_lines(self) -> int:
        """Lines of all files, blank ones counted."""
        return sum(file.num_lines for file in self.files)

    def identity(self) -> dict[str, str]:
        """Digest of each file by its name: equal where the input is the same."""
        return {file.name: file.digest for file in self.files}

    def changed(self, recorded: Sequence[SourceFile]) -> dict[str, str]:
        """Names of files that differ from the recorded ones, with what is the matter."""
        old = {file.name: file.digest for file in recorded}
        return _differences(old, self.identity())


def open_source(paths: Sequence[str], *, shard_bytes: int | None = None) -> Source:
    """Find the files, count their lines and cut them into shards.

    Args:
        paths: files, patterns or folders, read in this order.
        shard_bytes: size of a shard, about. None: a 4096th of the input within 4 to 64 MiB.
            A task that starts inside a shard reads over what lies before, so small is good;
            the run keeps a record of each, so there must not be too many.
    Raises: BadSource, naming every path that cannot be read.
    """
    found, notes = list_files(paths)
    if shard_bytes is None:
        share = sum(file.size for file in found) // WANTED_SHARDS
        shard_bytes = min(max(share, MIN_SHARD_BYTES), MAX_SHARD_BYTES)
    buffer = bytearray(max(1, min(BLOCK_BYTES, shard_bytes)))
    files: list[SourceFile] = []
    shards: list[Shard] = []
    for file in found:
        scan = _Scan(file, shard_bytes, len(shards))
        files.append(scan.read(buffer))
        shards += scan.shards
    return Source(files, shards, notes)


def open_recorded(
    files: Sequence[SourceFile], shards: Sequence[Shard], *, paths: Sequence[str] | None = None
) -> Source:
    """The source of an earlier start, its shards used as they were cut.

    Args:
        files: as they were counted.
        shards: as they were cut.
        paths: what the job names now. Files added to it are then noticed, and files that
            moved with their content are read from their new place.
    Raises: BadSource, naming every file that changed, is gone or was added.
    """
    differing = changed(files, paths=paths)
    if differing:
        each = ", ".join(f"`{name}` ({what})" for name, what in differing.items())
        reason = f"the input is not what the run began with: {each}; put it back, or start anew"
        raise BadSource(reason=reason)
    path_by_name = {file.name: file.path for file in _files_now(files, paths)}
    return Source(
        [msgspec.structs.replace(file, path=path_by_name[file.name]) for file in files],
        [msgspec.structs.replace(shard, path=path_by_name[shard.name]) for shard in shards],
    )


def changed(
    recorded: Sequence[SourceFile], *, paths: Sequence[str] | None = None
) -> dict[str, str]:
    """Names of files that are not as recorded: `changed`, `gone` or `added`.

    A file with the path, size and time it had is taken as unchanged; one of equal size
    and another time or place is read and its digest compared.

    Args:
        recorded: the files as they were counted.
        paths: what the job names now; None looks at the recorded files alone.
    Raises: BadSource where `paths` cannot be read.
    """
    old = {file.name: file for file in recorded}
    now = {file.name: _digest_now(file, old) for file in _files_now(recorded, paths)}
    return _differences({file.name: file.digest for file in recorded}, now)


def _differences(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    told = {}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            told[name] = "gone"
        elif name not in old:
            told[name] = "added"
        elif old[name] != new[name]:
            told[name] = "changed"
    return told


def _files_now(recorded: Sequence[SourceFile], paths: Sequence[str] | None) -> list[Found]:
    if paths is not None:
        return list_files(paths)[0]
    found = []
    for file in recorded:
        try:
            state = Path(file.path).stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(file.path, error) from error
        found.append(Found(file.path, file.name, state.st_size, state.st_mtime_ns))
    return found


def _digest_now(file: Found, old: dict[str, SourceFile]) -> str:
    """Digest of a file as it is; empty where its size alone tells that it is another."""
    before = old.get(file.name)
    if before is None or before.size != file.size:
        return ""
    if (before.path, before.mtime_ns) == (file.path, file.mtime_ns):
        return before.digest
    return _Scan(file, MAX_SHARD_BYTES, 0).read(bytearray(BLOCK_BYTES)).digest


def _unreadable(path: str, error: OSError) -> BadSource:
    return BadSource(reason=f"`{path}`: cannot be read ({error.strerror or error})")


class _Scan:
    """One pass over a file."""

    def __init__(self, file: Found, shard_bytes: int, first_index: int) -> None:
        self.shards: list[Shard] = []
        self._file = file
        self._shard_bytes = shard_bytes
        self._first_index = first_index
        self._start = 0
        """First byte of the slice that is open."""
        self._lines_before = 0
        """Lines of the slices that are cut."""
        self._num_newlines = 0
        """In the open slice."""

    def read(self, buffer: bytearray) -> SourceFile:
        """Read the file through `buffer`; its slices are in `shards` afterwards."""
        file = self._file
        try:
            with FileIO(file.path) as opened:
                digest = self._read_blocks(opened, buffer)
                state = os.fstat(opened.fileno())
        except OSError as error:
            raise _unreadable(file.path, error) from error
        if (state.st_size, state.st_mtime_ns) != (file.size, file.mtime_ns):
            reason = f"`{file.path}`: changed while it was read; wait until it is complete"
            raise BadSource(reason=reason)
        return SourceFile(
            file.path, file.name, file.size, file.mtime_ns, digest, self._lines_before
        )

    def _read_blocks(self, opened: FileIO, buffer: bytearray) -> str:
        hasher = xxhash.xxh3_128()
        view = memoryview(buffer)
        if opened.read(len(_BOM)) == _BOM:
            self._start = len(_BOM)
        opened.seek(0)
        stop = line_stop = 0
        while num_bytes := opened.readinto(buffer):
            hasher.update(view[:num_bytes])
            newline = buffer.rfind(b"\n", 0, num_bytes)
            if newline >= 0:
                self._num_newlines += _count_newlines(buffer, num_bytes)
                line_stop = stop + newline + 1
            stop += num_bytes
            if stop - self._start >= self._shard_bytes and line_stop > self._start:
                self._cut(line_stop, self._num_newlines)
        if stop > self._start:
            self._cut(stop, self._num_newlines + (line_stop < stop))
        elif not self.shards:
            self._cut(stop, 0)
        return hasher.hexdigest()

    def _cut(self, stop: int, num_lines: int) -> None:
        self.shards.append(
            Shard(
                index=self._first_index + len(self.shards),
                path=self._file.path,
                name=self._file.name,
                start=self._start,
                stop=stop,
                first_line=self._lines_before + 1,
                num_lines=num_lines,
            )
        )
        self._start = stop
        self._lines_before += num_lines
        self._num_newlines = 0


def _count_newlines(buffer: bytearray, num_bytes: int) -> int:
    """Newlines among the first bytes; unlike `bytes.count`, as fast where lines are short."""
    array = np.frombuffer(buffer, np.uint8, num_bytes)
    pieces = range(0, num_bytes, _COUNT_BYTES)
    return sum(
        int(np.count_nonzero(array[at : at + _COUNT_BYTES] == _NEWLINE)) for at in pieces
    )
