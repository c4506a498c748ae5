"""Names and bytes, kept or refused whole: what every place for output must promise.

Promises: `create` and `swap` have exactly one winner; no half object is ever seen under its name;
what a call has returned from is durable. Names beginning with a dot are the storage's own, never listed.
Knows nothing of: what the names mean (see rundir.py), rows, engines.
Memory: one object at a time; ranges and appends for what is larger.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Protocol

from rowmill.errors import StorageError

__all__ = ["AlreadyThere", "Appender", "NotThere", "Storage", "check_name", "is_hidden"]


class NotThere(StorageError):
    """An object that was to be read does not exist."""

    def __init__(self, *, path: str, reason: str = "there is no such object") -> None:
        super().__init__(path=path, reason=reason)

    def sentence(self) -> str:
        return f"`{self.fields['path']}`: {self.fields['reason']}"


class AlreadyThere(StorageError):
    """A file that was to be begun exists already."""

    def __init__(self, *, path: str, reason: str = "exists already") -> None:
        super().__init__(path=path, reason=reason)

    def sentence(self) -> str:
        return f"`{self.fields['path']}`: {self.fields['reason']}"


class Appender(Protocol):
    """A file that grows at its end, begun by this process."""

    size: int
    """Bytes written so far."""

    def write(self, content: bytes) -> None:
        """Hand all of `content` to the system, or raise StorageError and leave none of it."""
        ...

    def flush(self) -> None:
        """Make what was written visible to other readers."""
        ...

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        ...

    def close(self) -> None:
        """Give the file back; closing twice is fine."""
        ...


class Storage(Protocol):
    """A folder or a prefix, as named objects. Every failure is a StorageError."""

    url: str
    """The place in the user's own words."""
    can_append: bool
    """Whether `appender` works."""

    def read(self, name: str) -> bytes:
        """The whole object; NotThere where it is absent."""
        ...

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`, fewer where the object ends before; NotThere where it is absent."""
        ...

    def read_versioned(self, name: str) -> tuple[bytes, str] | None:
        """Content and the version `swap` wants, of one moment; None where it is absent."""
        ...

    def size(self, name: str) -> int | None:
        """Length in bytes; None where it is absent."""
        ...

    def create(self, name: str, content: bytes, *, durable: bool = True) -> bool:
        """Write a new object whole and durably; False, and no change, where it exists.

        Not `durable`: whole all the same, but a power cut may undo it; for what a restart can do without.
        """
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Write the object whole and durably over whatever was there."""
        ...

    def swap(
        self, name: str, content: bytes, version: str, *, durable: bool = True
    ) -> str | None:
        """Replace the object where it still has `version`.

        A version may come back with the same content: put a counter into what must not repeat.

        Returns: the new version; None, and no change, where it changed or is gone.
        """
        ...

    def list(self, prefix: str) -> list[str]:
        """Names that begin with `prefix` (any string), in order, at every depth, from the root on."""
        ...

    def remove(self, name: str) -> None:
        """Delete the object; absent is fine."""
        ...

    def appender(self, name: str) -> Appender:
        """Begin a new file to append to; AlreadyThere where it exists: an old file is never reopened."""
        ...

    def sweep(self) -> int:
        """Remove what killed processes left half made; how many there were."""
        ...

    def traceless(self) -> contextlib.AbstractContextManager[None]:
        """What the place itself needs for the writes inside, such as a lock, is gone afterwards, if nobody uses it."""
        ...

    def path(self, name: str) -> Path | None:
        """Where the object lies on this machine; None where it does not."""
        ...


def check_name(name: str) -> str:
    """The name itself, where it stays inside the root.

    Raises: ValueError for an empty part, `.`, `..`, an absolute name or a NUL: a mistake of ours, not the user's.
    """
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\0" in name:
        msg = f"`{name!r}` is no name inside a storage: parts between `/` must not be empty, `.` or `..`"
        raise ValueError(msg)
    return name


def is_hidden(name: str) -> bool:
    """Whether the name is the storage's own: lock, probe or half-written file."""
    return name.startswith(".") or "/." in name
