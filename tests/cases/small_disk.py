"""A small file system for tests that fill one; only where this user may mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, *, size: str) -> Iterator[Path]:
    """Mount a file system of `size` at `folder`; skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a small file system needs root to mount")
    folder.mkdir()
    asked = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: no mount here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    """Change a mounted file system: `size=64m`, `ro`."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)
