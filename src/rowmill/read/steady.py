"""Shard -> its file, the same from the first look to the last, or an error.

Promises: a file whose size or time changes while it is read ends the reading.
Knows nothing of: what stands in files.
Memory: nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rowmill.errors import StorageError
from rowmill.rows import Shard


@contextmanager
def steady(shard: Shard, place: int | str) -> Iterator[None]:
    """Raise where the file was changed meanwhile.

    Args:
        place: its descriptor, or its path where others open it.
    Raises: StorageError, and OSError where the file is not there.
    """
    before = _state(place)
    yield
    if _state(place) != before:
        raise changed_file(shard)


def _state(place: int | str) -> tuple[int, int, int]:
    state = os.stat(place)  # noqa: PTH116 - `Path.stat` takes no descriptor
    return state.st_ino, state.st_size, state.st_mtime_ns


def changed_file(shard: Shard) -> StorageError:
    """What is raised where a file is not what it was when it was counted."""
    return StorageError(
        path=shard.path, reason="changed while the run was reading it; put the old file back"
    )


def unreadable_file(shard: Shard, why: str) -> StorageError:
    """What is raised where a file cannot be opened or read."""
    return StorageError(path=shard.path, reason=f"cannot be read ({why})")
