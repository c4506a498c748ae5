"""Kind -> a folder of this process on the temporary disk, for what has no place in a run's own folder.

Promises: what a killed process left is removed by the next start; the folders of living ones are not touched.
Knows nothing of: what lies in it.
Memory: none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from rowmill.storage.files import take_lock

LOCK_NAME = ".lock"


def temporary_folder(kind: str) -> Path:
    """A new folder; others of its kind whose process is gone are removed."""
    prefix = f"rowmill-{kind}-"
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(folder)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    # Held until this process ends, however it does.
    take_lock(folder / LOCK_NAME, fcntl.LOCK_EX)
    return folder


def _remove_if_left(folder: Path) -> None:
    # One without a lock is just being made.
    if not (folder / LOCK_NAME).exists():
        return
    with contextlib.suppress(OSError):
        lock = take_lock(folder / LOCK_NAME, fcntl.LOCK_EX)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
