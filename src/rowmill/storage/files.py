"""The system's calls on files that `os` and `pathlib` leave half done: folders, locks, syncs, short writes.

Promises: descriptors are not passed on to programs that are started; a write is complete or raises.
Knows nothing of: storages and their names; every failure stays an OSError.
Memory: nothing kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

MOST_TRIES = 20
"""Against another process that removes an empty folder under our hands."""
NO_FOLDER_SYNC = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}


def take_lock(path: Path, mode: int) -> int | None:
    """Open the lock file, making it where it is absent, and try its flock.

    Returns: a descriptor that holds the lock until it is closed, not passed on to programs that are
    started; None where another holds it.
    """
    fd = open_with_folders(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
        # The file may have been removed, or made anew, between opening and locking.
        if os.path.samestat(os.fstat(fd), path.stat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def open_new(path: Path) -> int:
    """Begin a file that must not exist, for appending."""
    return open_with_folders(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)


def open_with_folders(path: Path, flags: int) -> int:
    """Open, making the folders above where they are absent."""
    for _ in range(MOST_TRIES):
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                make_folder(path.parent)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def sync_folder(folder: Path) -> None:
    """Make names of the folder survive a power cut, where the file system can."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        # A folder may be written to and not listed; its names are then the system's to sync.
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Make the folder and those above it, each name synced; a folder that is there is fine."""
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)
            ) from None
        return
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_all(fd: int, content: bytes) -> None:
    """Write the whole content: the system may take less at a time, at a full disk above all."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def read_up_to(read: Callable[[int], bytes | None], num_bytes: int) -> bytes:
    """Read `num_bytes`, fewer only at the end of the file."""
    parts: list[bytes] = []
    while num_bytes > 0 and (part := read(num_bytes)):
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)


def files_under(folder: Path) -> Iterator[Path]:
    """Every file at any depth; a folder that vanishes meanwhile, or never was, has none."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_under(Path(entry.path))
        else:
            yield Path(entry.path)
