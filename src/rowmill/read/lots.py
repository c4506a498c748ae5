"""Rows -> lots on a disk -> Rows: lines with their keys, put apart by number and read back lot by lot.

Promises: a lot gives back its rows as they were put in, in that order, each once, or reading it fails.
Knows nothing of: why a row is in which lot.
Memory: writing, `HELD_BYTES` over all lots; reading, one lot.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rowmill.errors import StorageError
from rowmill.read.badline import BadLine
from rowmill.rows import AnyRow, Row

HELD_BYTES = 64 * 2**20
CHUNK_ROWS = 4096
_HEAD = struct.Struct("<QIB")
"""Key, bytes that follow, whether they are a line or what is wrong with one."""


class LotFiles:
    """Lots in the making, a file each, in a folder of their own."""

    def __init__(self, folder: Path, prefix: str, lots: Iterable[int]) -> None:
        """Begin.

        Args:
            prefix: what the names of the files begin with.
            lots: those that are wanted; rows of others are passed over.
        """
        self._folder, self._prefix = folder, prefix
        self._held: dict[int, list[bytes]] = {lot: [] for lot in lots}
        self._num_bytes = 0

    def add(self, rows: Sequence[AnyRow | BadLine], lots: Sequence[int]) -> None:
        """Put each row into its lot.

        Raises: StorageError where the disk refuses it.
        """
        for row, lot in zip(rows, lots, strict=True):
            if lot not in self._held:
                continue
            is_bad = type(row) is BadLine
            content = row.reason.encode() if isinstance(row, BadLine) else row.line
            self._held[lot] += (_HEAD.pack(row.key, len(content), is_bad), content)
            self._num_bytes += _HEAD.size + len(content)
        if self._num_bytes >= HELD_BYTES:
            self._flush()

    def finish(self) -> dict[int, Path]:
        """Write what is held. Returns: the file of each lot, durable; an empty one has a file, too.

        Raises: StorageError where the disk refuses it.
        """
        self._flush()
        paths = {lot: self._path(lot) for lot in self._held}
        for path in paths.values():
            _append(path, b"", is_last=True)
        return paths

    def abandon(self) -> None:
        """Remove what was not taken away."""
        for lot in self._held:
            with suppress(OSError):
                self._path(lot).unlink(missing_ok=True)

    def _path(self, lot: int) -> Path:
        return self._folder / f"{self._prefix}{lot:07d}"

    def _flush(self) -> None:
        from rowmill.read.zstd import CompressionParameter, ZstdCompressor

        options: dict[int, int] = {
            CompressionParameter.compression_level: 1,
            CompressionParameter.checksum_flag: 1,
        }
        for lot, held in self._held.items():
            if not held:
                continue
            packing = ZstdCompressor(options=options)
            frame = packing.compress(b"".join(held)) + packing.flush()
            _append(self._path(lot), frame)
            self._held[lot] = []
        self._num_bytes = 0


def _append(path: Path, frame: bytes, *, is_last: bool = False) -> None:
    try:
        with path.open("ab") as file:
            file.write(frame)
            if is_last:
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise StorageError(path=str(path), reason=reason) from error


def read_lot(name: str, content: bytes, num_rows: int) -> Iterator[list[AnyRow | BadLine]]:
    """The rows of a lot, in chunks of a few thousand.

    Raises: StorageError where it does not hold its `num_rows` rows.
    """
    whole = _unpacked(name, content)
    at = count = 0
    while at < len(whole):
        rows: list[AnyRow | BadLine] = []
        while at < len(whole) and len(rows) < CHUNK_ROWS:
            key, length, is_bad = _HEAD.unpack_from(whole, at)
            at += _HEAD.size
            text = whole[at : at + length]
            rows.append(BadLine(key, text.decode()) if is_bad else Row(key, text))
            at += length
        count += len(rows)
        yield rows
    if count != num_rows:
        raise _damaged(name)


def _unpacked(name: str, content: bytes) -> bytes:
    from rowmill.read.zstd import ZstdDecompressor, ZstdError

    pieces: list[bytes] = []
    try:
        while content:
            unpacking = ZstdDecompressor()
            pieces.append(unpacking.decompress(content))
            if not unpacking.eof:
                raise _damaged(name)
            content = unpacking.unused_data
    except ZstdError as error:
        raise _damaged(name) from error
    return b"".join(pieces)


def _damaged(name: str) -> StorageError:
    return StorageError(
        path=name, reason="is damaged; remove it, it is made anew from the input"
    )
