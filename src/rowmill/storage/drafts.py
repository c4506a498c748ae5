"""Pieces -> one object, visible under its name once it is whole.

Promises: until `finish` returns nobody sees anything under the name; an abandoned draft leaves nothing.
Knows nothing of: what is written.
Memory: nothing kept; for an object store the whole lies on the temporary disk before it is sent.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rowmill.storage.contract import Storage
from rowmill.storage.files import sync_folder, write_all
from rowmill.storage.local import LocalStorage, open_temp, told
from rowmill.storage.objects import ObjectStorage

WRITEBACK_BYTES = 16 * 2**20


class Draft(Protocol):
    """An object in the making."""

    def write(self, content: bytes) -> None:
        """Add a piece. Raises: StorageError."""
        ...

    def finish(self) -> None:
        """Give it its name, durably, over whatever was there. Raises: StorageError."""
        ...

    def abandon(self) -> None:
        """Throw it away."""
        ...


def open_draft(storage: Storage, name: str) -> Draft:
    """Begin an object that is written piece by piece."""
    if isinstance(storage, LocalStorage):
        return _LocalDraft(storage, name)
    assert isinstance(storage, ObjectStorage)
    return _ObjectDraft(storage, name)


class _LocalDraft:
    def __init__(self, storage: LocalStorage, name: str) -> None:
        self._path = storage.path(name)
        self._size = self._begun = 0
        try:
            self._temp, self._fd = open_temp(self._path.parent)
        except OSError as error:
            raise told(self._path, error) from error

    def write(self, content: bytes) -> None:
        try:
            write_all(self._fd, content)
            self._size += len(content)
            if self._size - self._begun >= WRITEBACK_BYTES:
                # Linux begins to write these pages back now, so that `finish` waits for the last of them only.
                span = self._size - self._begun
                os.posix_fadvise(self._fd, self._begun, span, os.POSIX_FADV_DONTNEED)
                self._begun = self._size
        except OSError as error:
            raise told(self._path, error) from error

    def finish(self) -> None:
        try:
            os.fsync(self._fd)
            self._temp.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise told(self._path, error) from error
        os.close(self._fd)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._temp.unlink()
        with contextlib.suppress(OSError):
            os.close(self._fd)


class _ObjectDraft:
    """Gathered in a file without a name, so that a killed process leaves none."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage, self._name, self._size = storage, name, 0
        self._place = Path(tempfile.gettempdir())
        with self._told():
            self._file = tempfile.TemporaryFile(prefix="rowmill-")  # noqa: SIM115 - closed by `finish` or `abandon`

    def write(self, content: bytes) -> None:
        with self._told():
            self._file.write(content)
        self._size += len(content)

    def finish(self) -> None:
        with self._told():
            self._file.flush()
        self._storage.upload(self._name, self._file, self._size)
        self._file.close()

    def abandon(self) -> None:
        # Closing writes what is left, to a disk that may be full.
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise told(self._place, error) from error
