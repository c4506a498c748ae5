"""Shard -> its file, the same from the first look to the last, or an error.

Promises: a file whose size or time changes while it is read ends the reading.
Knows nothing of: what stands in files.
Memory: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rowmill.errors import StorageError
from rowmill.read.opened import FileState
from rowmill.rows import Shard


@contextmanager
def steady(shard: Shard, look: Callable[[], FileState]) -> Iterator[FileState]:
    """Raise where the file was changed meanwhile; else its state.

    Raises: StorageError, and OSError where the file is not there.
    """
    before = look()
    yield before
    if look() != before:
        raise changed_file(shard)


def changed_file(shard: Shard) -> StorageError:
    """What is raised where a file is not what it was when it was counted."""
    return StorageError(
        path=shard.path, reason="changed while the run was reading it; put the old file back"
    )


def unreadable_file(shard: Shard, why: str) -> StorageError:
    """What is raised where a file cannot be opened or read."""
    return StorageError(path=shard.path, reason=f"cannot be read ({why})")
