"""Which commits a store holds: a create-only record a commit, beside the run.

Promises: a record is written after the store has taken the vectors, never before.
Knows nothing of: stores.
Memory: a record a commit.
"""

from __future__ import annotations

import msgspec
import xxhash

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.storage import Storage
from rowmill.write.keyed.points import Refusal

MOST_TOLD = 10
"""Refused rows of one task that are told by name."""


class Loaded(msgspec.Struct, frozen=True):
    """What a store took of one commit."""

    rows: int = 0
    vectors: int = 0
    refused: int = 0
    """Rows with a vector that the store did not get."""
    told: list[Refusal] = []
    """The first of them."""
    by: str = ""
    """The settings that they were refused by; empty where none were."""


class Ledger:
    """What one store holds of one run."""

    def __init__(self, storage: Storage, sink: str) -> None:
        """Read what is there; `sink` is all that tells one place for vectors from another."""
        self._storage = storage
        self._digest = xxhash.xxh3_64_hexdigest(sink.encode())
        self.by_commit: dict[str, Loaded] = {}
        for name in storage.list(rundir.loads_of(self._digest)):
            try:
                found = msgspec.json.decode(storage.read(name), type=Loaded)
            except msgspec.DecodeError:
                # Loading again is harmless.
                continue
            self.by_commit[rundir.commit_of_load(name)] = found
        self.can_keep = True
        """Whether records can be written: a run may lie where we can only read."""

    def counted(self) -> list[Loaded]:
        """What the store holds of each task: after a retry, its last commit has all the rows of the earlier ones."""
        names = sorted(self.by_commit)
        last = {rundir.task_of_commit(name): self.by_commit[name] for name in names}
        return list(last.values())

    @property
    def num_vectors(self) -> int:
        """How many vectors the store should hold of this run."""
        return sum(one.vectors for one in self.counted())

    def add(self, commit: str, loaded: Loaded) -> None:
        """Note that the store has taken a commit's vectors."""
        self.by_commit[commit] = loaded
        if not self.can_keep:
            return
        try:
            content = msgspec.json.encode(loaded)
            self._storage.replace(rundir.load(self._digest, commit), content)
        except StorageError:
            self.can_keep = False

    def clear(self) -> None:
        """Forget all: the store has lost it."""
        if self.can_keep:
            for commit in self.by_commit:
                self._storage.remove(rundir.load(self._digest, commit))
        self.by_commit.clear()
