"""Shard -> blocks of text: the bytes of one slice, whether it lies in its file or in a spool.

Promises: the bytes of the slice, all of them, or an error that names the file.
Knows nothing of: lines, records.
Memory: one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO

from rowmill.read.steady import changed_file, steady, unreadable_file
from rowmill.rows import Shard

__all__ = ["CHUNK_BYTES", "blocks", "changed_file"]

CHUNK_BYTES = 1 << 20


def blocks(shard: Shard, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The text of a slice, in blocks of at most `chunk_bytes`.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    try:
        with FileIO(shard.path) as file, steady(shard, file.fileno()):
            file.seek(shard.start)
            left = shard.stop - shard.start
            while left:
                block = file.read(min(chunk_bytes, left))
                if not block:
                    raise changed_file(shard)
                left -= len(block)
                yield block
    except OSError as error:
        raise unreadable_file(shard, error.strerror or str(error)) from error
