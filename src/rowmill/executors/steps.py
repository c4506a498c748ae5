"""Steps down that engines took for want of memory <-> `plan/engine-steps.json`, so that a resume begins with them.

Promises: written whole before a step is tried; a file that is damaged counts as none: the steps are found again.
Knows nothing of: which steps there are.
"""

from __future__ import annotations

import threading

import msgspec

from rowmill import rundir
from rowmill.engines.ladder import Step
from rowmill.storage import Storage


class Steps:
    """The steps of one run. Any thread may add one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self.taken = self._read()

    def keep(self, step: Step) -> None:
        """Keep one; of two on one setting, the one that was taken last."""
        with self._lock:
            others = [one for one in self.taken if one.setting != step.setting]
            self.taken = [*others, step]
            self._storage.replace(rundir.STEPS, msgspec.json.encode(self.taken))

    def _read(self) -> list[Step]:
        if self._storage.size(rundir.STEPS) is None:
            return []
        try:
            return msgspec.json.decode(self._storage.read(rundir.STEPS), type=list[Step])
        except msgspec.DecodeError:
            return []
