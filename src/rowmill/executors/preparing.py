"""An open run -> token ids of tasks that nobody works on yet, for whoever claims those (prepared.py).

Promises: it works only while the run lives, under its token; nothing but files under `prepared/` is written;
whether ids fit is decided by a fingerprint of everything that they come from.
Knows nothing of: who says which task is next, engines.
Memory: one task's ids, up to a bound.
Threads: `prepare` takes one; `stop` may be called from another.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Iterator

import msgspec
import numpy as np
import xxhash

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import EngineDied, RowError, RowmillError
from rowmill.executors.opening import Opened, check_input, open_run
from rowmill.executors.wording import identity_of
from rowmill.leases import Owner, claim_output
from rowmill.pipeline import each
from rowmill.prepared import Draft, Prepared
from rowmill.read import in_turn, read_rows
from rowmill.rows import Request
from rowmill.storage import Storage, open_storage

MADE_BY = ("rowmill", "tokenizers", "jinja2")
"""Packages that text and ids come from."""


class Made(msgspec.Struct, frozen=True):
    """What became of a task that was to be tokenised."""

    task: int
    num_bytes: int = 0
    """On the disk; 0: no file was written."""
    error: RowmillError | None = None


class Preparer:
    """One process that tokenises tasks of a run."""

    def __init__(self, job: Job, *, token: str) -> None:
        """Nothing is opened yet."""
        self._job, self._token = job, token
        self._share: tuple[Owner, Opened, Storage, str] | None = None
        self._over = threading.Event()

    def prepare(self, task: int) -> Made:
        """Keep the token ids of a task's rows; what went wrong is told, not raised."""
        try:
            return Made(task, self._prepare(task))
        except RowmillError as error:
            return Made(task, error=error)

    def stop(self) -> None:
        """Leave off at once."""
        self._over.set()

    def close(self) -> None:
        """Give back the share in the run."""
        if self._share is not None:
            self._share[0].close()
            self._share = None

    def _prepare(self, task: int) -> int:
        if self._share is None:
            self._share = self._opened()
        _, opened, storage, mark = self._share
        if self._over.is_set() or storage.size(rundir.lease(task)) is not None:
            return 0  # who holds it is about to tokenise it
        draft = Draft(task, mark)
        measure = opened.words.measure
        for requests in self._requests(opened, task):
            if self._over.is_set():
                return 0
            ids, stops, bad = measure.encoded(requests, _left_to_the_worker)
            parts = np.split(ids, stops[:-1]) if requests else []
            for i, (request, part) in enumerate(zip(requests, parts, strict=True)):
                if i not in bad:
                    draft.add(request.key, part)
            if draft.is_full:
                break
        check_input(opened, [task])
        return 0 if self._over.is_set() else draft.keep(storage)

    def _requests(self, opened: Opened, task: int) -> Iterator[list[Request]]:
        recipe = opened.words.recipe
        for shard, first, stop in in_turn(opened.places.task_slices(task)):
            for rows in read_rows(shard, first=first, stop=stop, wanted=recipe.wanted):
                requests = each(rows, recipe, _left_to_the_worker)
                yield [request for request in requests if request.ids is None]

    def _opened(self) -> tuple[Owner, Opened, Storage, str]:
        storage = open_storage(self._job.output.path)
        owner = claim_output(storage, token=self._token, lease_s=self._job.run.lease_s)
        try:
            opened = _of_living(owner, self._job, storage)
        except BaseException:
            owner.close()
            raise
        return owner, opened, storage, fingerprint(opened)


def _of_living(owner: Owner, job: Job, storage: Storage) -> Opened:
    if not owner.has_joined:
        raise EngineDied(reason="the process that owned the run has ended")
    return open_run(job, storage, token=owner.token)


def with_prepared(opened: Opened, storage: Storage) -> Opened:
    """The run, with token ids taken from where a `Preparer` puts them."""
    known = Prepared(storage, opened.places, fingerprint(opened))
    return msgspec.structs.replace(opened, known=known)


def fingerprint(opened: Opened) -> str:
    """Of all that token ids of a run's rows come from: input, settings, template, tokenizer, code."""
    words = opened.words
    versions = {name: importlib.metadata.version(name) for name in MADE_BY}
    made_from = {
        "run": opened.record.token,
        # Not where they lie, nor since when: a node may have copies of its own.
        "files": [(file.name, file.digest) for file in opened.record.files],
        "identity": identity_of(words),
        "versions": versions,
    }
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(made_from, order="deterministic"))


def _left_to_the_worker(_row: int, _error: RowError) -> None:
    """A row that falls out does so again where it is asked, and is told of there."""
