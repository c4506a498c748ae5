"""Commits as they come -> how much of a run counts by now, each commit read once.

Promises: what it says is on the disk; no row is counted twice.
Knows nothing of: workers.
Memory: a name a task, and sums.
"""

from __future__ import annotations

import msgspec

from rowmill import rundir
from rowmill.journal import Commit, Counts
from rowmill.record import Cut, Places
from rowmill.storage import Storage


class Ledger:
    """The commits of one run."""

    def __init__(self, storage: Storage, cut: Cut) -> None:
        self._storage, self._places = storage, Places(cut)
        self._seen: set[str] = set()
        self._num_tasks = cut.num_tasks
        self._decoder = msgspec.json.Decoder(Commit)
        self.counts = Counts()
        """Over all commits."""
        self.total = cut.num_lines
        """Rows of the run: lines, less the blank ones of committed tasks."""
        self.refresh()
        self.resumed = self.counts.done
        """Rows that were committed when this was opened."""

    @property
    def open_tasks(self) -> int:
        """Tasks without a commit."""
        return self._num_tasks - len(self._seen)

    def refresh(self) -> None:
        """Read what was committed since."""
        for name in self._storage.list(rundir.COMMITS):
            if name in self._seen or rundir.retry_of_commit(name):
                continue
            commit = self._decoder.decode(self._storage.read(name))
            slices = self._places.task_slices(commit.task)
            lines = sum(stop - first for _, first, stop in slices)
            self.total -= lines - commit.num_rows
            self.counts.merge(commit.counts)
            self._seen.add(name)
