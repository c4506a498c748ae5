"""Names and bytes -> files of one folder, each whole or not there at all.

Promises: a file is written under a hidden name, synced, then given its own name in one step;
kill -9 at any byte leaves at most a hidden file, which `sweep` removes.
Knows nothing of: objects elsewhere, what the names mean.
Memory: one object at a time.

`ulimit -f` sends SIGXFSZ, which would end the process without a word. The Python interpreter ignores
that signal from its start, so the write fails with EFBIG and becomes a StorageError like any other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rowmill.errors import StorageError
from rowmill.storage.contract import AlreadyThere, NotThere, check_name, is_hidden
from rowmill.storage.files import (
    files_under,
    open_new,
    read_up_to,
    sync_folder,
    take_lock,
    write_all,
)

LOCK_NAME = ".lock"
TEMP_PREFIX = ".tmp-"
LOCK_WAIT_S = 60.0
"""The lock is held for a rename and a sync; who waits longer stands behind a stopped process."""
MOST_TRIES = 20
"""Against another process that sweeps a file between its making and its lock."""
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}

_numbers = itertools.count()


class LocalStorage:
    """One folder of this machine, made when the first file is written."""

    can_append = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.root = Path(os.path.abspath(url))  # noqa: PTH100 - resolve() would follow the user's links

    def __reduce__(self) -> tuple[type[LocalStorage], tuple[str]]:
        """Rebuilt from the absolute path: a child may stand in another folder."""
        return LocalStorage, (str(self.root),)

    def path(self, name: str) -> Path:
        """Where the object lies."""
        return self.root / check_name(name)

    def read(self, name: str) -> bytes:
        """The whole object."""
        with self._read_told(name):
            return self.path(name).read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`, fewer where the file ends before."""
        with self._read_told(name), self.path(name).open("rb", buffering=0) as file:
            file.seek(start)
            return read_up_to(file.read, stop - start)

    def read_versioned(self, name: str) -> tuple[bytes, str] | None:
        """Content, and its digest as the version."""
        try:
            content = self.read(name)
        except NotThere:
            return None
        return content, _version(content)

    def size(self, name: str) -> int | None:
        """Length in bytes; None where it is absent."""
        try:
            with self._read_told(name):
                return self.path(name).stat().st_size
        except NotThere:
            return None

    def create(self, name: str, content: bytes, *, durable: bool = True) -> bool:
        """Write a new file whole and durably; False where it exists."""
        path = self.path(name)
        with self._told(name):
            # Spares the temporary file; the link below is what decides.
            if os.path.lexists(path):
                return False
            return self._publish(path, content, self._link, durable=durable)

    def replace(self, name: str, content: bytes) -> None:
        """Write the file whole and durably over whatever was there."""
        with self._told(name):
            self._publish(self.path(name), content, self._rename)

    def swap(
        self, name: str, content: bytes, version: str, *, durable: bool = True
    ) -> str | None:
        """Replace the file where it still has `version`, under the folder's lock."""

        def rename_unchanged(temp: Path, path: Path) -> bool:
            with self._locked():
                found = self.read_versioned(name)
                if found is None or found[1] != version:
                    return False
                temp.replace(path)
                return True

        with self._told(name):
            # Asked first so that a lost race makes neither a file nor a folder.
            if self.size(name) is None:
                return None
            path = self.path(name)
            swapped = self._publish(path, content, rename_unchanged, durable=durable)
        return _version(content) if swapped else None

    def list(self, prefix: str) -> list[str]:
        """Names that begin with `prefix`, in order."""
        folder, _, _ = prefix.rpartition("/")
        start = self.root / check_name(folder) if folder else self.root
        with self._told(prefix):
            names = [path.relative_to(self.root).as_posix() for path in files_under(start)]
        return sorted(name for name in names if name.startswith(prefix) and not is_hidden(name))

    def remove(self, name: str) -> None:
        """Delete the file; absent is fine."""
        path = self.path(name)
        with self._told(name):
            if not os.path.lexists(path):
                return
            with self._locked():
                path.unlink(missing_ok=True)
                sync_folder(path.parent)

    def appender(self, name: str) -> LocalAppender:
        """Begin a new file to append to."""
        path = self.path(name)
        with self._told(name):
            fd = open_new(path)
            try:
                sync_folder(path.parent)
            except OSError:
                os.close(fd)
                raise
        return LocalAppender(path, fd)

    def sweep(self) -> int:
        """Remove half-written files whose process is gone; how many there were.

        A living writer holds a lock on its file: that holds over process ids used again,
        and over containers and hosts that share the folder.
        """
        with self._told(""):
            found = [p for p in files_under(self.root) if p.name.startswith(TEMP_PREFIX)]
            return sum(_remove_if_left(path) for path in found)

    @contextlib.contextmanager
    def traceless(self) -> Iterator[None]:
        """Whatever lock and folders come into being inside are gone afterwards, if nobody uses them."""
        lock = self.root / LOCK_NAME
        had_lock = os.path.lexists(lock)
        # Not `Path.exists`: it raises where a name is too long.
        every = (self.root, *self.root.parents)
        made = [folder for folder in every if not os.path.lexists(folder)]
        try:
            yield
        finally:
            if not had_lock and os.path.lexists(lock):
                with contextlib.suppress(OSError), self._locked():
                    lock.unlink()
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _publish(
        self,
        path: Path,
        content: bytes,
        give_name: Callable[[Path, Path], bool],
        *,
        durable: bool = True,
    ) -> bool:
        for _ in range(MOST_TRIES):
            temp, fd = open_temp(path.parent)
            try:
                write_all(fd, content)
                if durable:
                    os.fsync(fd)
                named = give_name(temp, path)
            except FileNotFoundError:
                # Another process swept the file between its making and its lock.
                continue
            finally:
                # In this order: while the lock is held, nobody else sweeps.
                with contextlib.suppress(OSError):
                    temp.unlink()
                os.close(fd)
            if named and durable:
                sync_folder(path.parent)
            return named
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def _link(self, temp: Path, path: Path) -> bool:
        try:
            os.link(temp, path, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            return self._rename_new(temp, path)
        return True

    def _rename_new(self, temp: Path, path: Path) -> bool:
        """Where there are no hard links (FAT, some network folders), every creator comes by this lock."""
        with self._locked():
            if os.path.lexists(path):
                return False
            temp.rename(path)
            return True

    def _rename(self, temp: Path, path: Path) -> bool:
        with self._locked():
            temp.replace(path)
            return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock against other threads and processes."""
        lock = self.root / LOCK_NAME
        give_up_at = time.monotonic() + LOCK_WAIT_S
        fd = take_lock(lock, fcntl.LOCK_EX)
        while fd is None:
            if time.monotonic() > give_up_at:
                reason = f"another process has held this lock for {LOCK_WAIT_S:.0f} s"
                raise StorageError(path=str(lock), reason=reason)
            time.sleep(0.002)
            fd = take_lock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Every OSError inside leaves as a StorageError that names the file and the system's reason."""
        try:
            yield
        except OSError as error:
            raise told(self.root / name, error) from error

    @contextlib.contextmanager
    def _read_told(self, name: str) -> Iterator[None]:
        """As `_told`, for reading, where an absent file is an answer."""
        try:
            with self._told(name):
                yield
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NotThere(path=str(self.root / name)) from error.__cause__
            raise


class LocalAppender:
    """A file that grows at its end. After a failed write or sync it takes nothing more."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.size = 0
        self._fd = fd
        self._failure: OSError | None = None

    def write(self, content: bytes) -> None:
        """Hand all of `content` to the system, or raise and cut off what was written of it."""
        with self._guarded():
            try:
                write_all(self._fd, content)
            except OSError:
                # Best effort: readers take no torn last line anyway.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self.size)
                raise
            self.size += len(content)

    def flush(self) -> None:
        """Nothing is kept back in this process; only an earlier failure is told again."""
        with self._guarded():
            pass

    def sync(self) -> None:
        """Make what was written survive a power cut."""
        with self._guarded():
            os.fsync(self._fd)

    def close(self) -> None:
        """Give the file back; closing twice is fine."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            os.close(fd)
        except OSError as error:
            raise told(self.path, error) from error

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        # A second fsync after a failed one may succeed although the bytes are lost, so failure stays.
        if self._failure is not None:
            raise told(self.path, self._failure) from self._failure
        try:
            yield
        except OSError as error:
            self._failure = error
            raise told(self.path, error) from error


def told(path: Path, error: OSError) -> StorageError:
    """The StorageError that says what the system said."""
    if isinstance(error, FileExistsError):
        return AlreadyThere(path=str(path))
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(path=str(path), reason=reason)


def open_temp(folder: Path) -> tuple[Path, int]:
    """A hidden file of a name of its own, locked for as long as its writer lives."""
    while True:
        temp = folder / f"{TEMP_PREFIX}{os.getpid()}-{next(_numbers)}"
        try:
            fd = open_new(temp)
        except FileExistsError:
            continue
        # Without file locks nothing is ever swept.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return temp, fd


def _remove_if_left(path: Path) -> bool:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(fd)
        return True
    return False


def _version(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
