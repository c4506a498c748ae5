"""Shard -> blocks of text: the bytes of one slice, whether it lies in its file or in a spool.

Promises: the bytes of the slice, all of them, or an error that names the file.
Knows nothing of: lines, records.
Memory: one block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO

from rowmill.errors import StorageError
from rowmill.rows import Shard

CHUNK_BYTES = 1 << 20


def blocks(shard: Shard, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The text of a slice, in blocks of at most `chunk_bytes`.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    try:
        with FileIO(shard.path) as file:
            before = os.fstat(file.fileno())
            file.seek(shard.start)
            left = shard.stop - shard.start
            while left:
                block = file.read(min(chunk_bytes, left))
                if not block:
                    raise changed_file(shard)
                left -= len(block)
                yield block
            after = os.fstat(file.fileno())
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error})"
        raise StorageError(path=shard.path, reason=reason) from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise changed_file(shard)


def changed_file(shard: Shard) -> StorageError:
    """What is raised where a file is not what it was when it was counted."""
    return StorageError(
        path=shard.path, reason="changed while the run was reading it; put the old file back"
    )
