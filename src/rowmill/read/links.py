"""Paths found below a folder, or by a pattern -> whether they are read: links may lead anywhere.

Promises: nothing outside the folder is read unasked; no folder is walked twice.
Knows nothing of: what files hold.
Memory: the real path of each linked folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

Policy = Literal["refuse", "follow", "skip"]


class Links:
    """The links below one root."""

    def __init__(
        self,
        root: Path,
        policy: Policy,
        *,
        skipped: Counter[str],
        refuse: Callable[[Path, str], None],
    ) -> None:
        self._root, self._policy = real_path(root), policy
        self._skipped, self._refuse = skipped, refuse
        self._been = {self._root}

    def may_read(self, path: Path) -> bool:
        """Whether what is there lies within the root, or may be read wherever it lies."""
        if self._policy == "follow" or (real := real_path(path)).is_relative_to(self._root):
            return True
        if self._policy == "skip":
            self._skipped["links that lead out of the folder"] += 1
        else:
            why = (
                f"leads out of the folder, to `{real}`; if that is meant, set `read.links` to"
                " `follow`, or to `skip` to leave it out"
            )
            self._refuse(path, why)
        return False

    def is_walked(self, folder: Path) -> bool:
        """Whether a folder's files are wanted: those behind a link only where it leads out, and once."""
        if not folder.is_symlink():
            return True
        real = real_path(folder)
        if real.is_relative_to(self._root) or real in self._been:
            self._skipped["links to folders"] += 1
            return False
        self._been.add(real)
        return self.may_read(folder)


def real_path(path: Path) -> Path:
    """Unlike `Path.resolve`, a ring of links is no error here but where it is opened."""
    return Path(os.path.realpath(path))
