"""`[sink]` of a run: checked before a row is asked, loaded as the run goes, told at its end.

Promises: a store that is not as the job wants it refuses the job; one that fails later costs no row.
Knows nothing of: any one store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from rowmill.config import Job
from rowmill.errors import SinkDown
from rowmill.events import Listener, Note, Summary
from rowmill.executors.opening import Opened
from rowmill.executors.slots import Slot, pod_name
from rowmill.join.columns import carried_columns
from rowmill.join.part import unpacked_schema
from rowmill.join.parting import Limited, column_limits
from rowmill.load.along import Along
from rowmill.load.loader import Loader, Total
from rowmill.load.targets import (
    check_dimensions,
    check_job,
    check_target,
    choice_of,
    not_there,
)
from rowmill.load.words import total_line
from rowmill.record import read_run
from rowmill.rows import Limits
from rowmill.storage import Storage, address_of
from rowmill.write.form import Form

MOST_LOOKED_AT = 256 * 2**20
"""Bytes of input whose columns are looked at before the engine starts; those of more show while it works."""


def check_sink(opened: Opened) -> None:
    """See that the store of the job takes its rows.

    Raises: ConfigError where it does not, or does not answer.
    """
    job = opened.words.job
    check_job(job)
    if not job.sink.to:
        return
    dimensions = _dimensions(job, opened.words.limits)
    limits = column_limits(opened.cut)
    try:
        if sum(shard.weight for shard, _ in limits) > MOST_LOOKED_AT:
            check_dimensions(job.sink, job.output.prefix, dimensions)
        else:
            _check_columns(job, limits, dimensions)
    except SinkDown as error:
        raise not_there(job.sink, error) from error


def _check_columns(job: Job, limits: list[Limited], dimensions: int) -> None:
    columns = carried_columns(limits, Form("parquet"), job.output.prefix)
    schema = unpacked_schema(columns.schema)
    check_target(
        job.sink,
        job.output.prefix,
        choice=choice_of(job, schema),
        schema=schema,
        dimensions=dimensions,
    )


def check_vectors(job: Job, limits: Limits) -> None:
    """See that the vectors of engines, which are open now and not asked yet, are as long as the store's.

    Raises: ConfigError.
    """
    if job.sink.to and limits.dimensions:
        # It answered a moment ago; what is between is for whoever loads.
        with contextlib.suppress(SinkDown):
            check_dimensions(job.sink, job.output.prefix, _dimensions(job, limits))


def _dimensions(job: Job, limits: Limits) -> int:
    """Numbers in each vector as it leaves the engine; 0 while they are not known."""
    return job.embed.dimensions or limits.dimensions


class Loading:
    """Loading along with one worker."""

    def __init__(
        self, opened: Opened, storage: Storage, slot: Slot, listen: Listener | None
    ) -> None:
        self._job, self._storage, self._listen = opened.words.job, storage, listen
        self._along: Along | None = None
        self.result: Total | str | None = None
        """What came of it; None where nothing was to be loaded, or it was stopped."""
        url = address_of(storage)
        if self._job.sink.to and url:
            worker = "" if slot.is_alone else pod_name()
            self._along = Along(url, self._job, worker=worker, listen=listen)

    def end(self, *, is_whole: bool) -> None:
        """Wait for what is not loaded yet."""
        if self._along is not None:
            self.result = self._along.end(is_whole=is_whole)
        elif self._job.sink.to and is_whole:
            self.result = self._load_here()

    def stop(self) -> None:
        """End it where it has not ended."""
        if self._along is not None:
            self._along.stop()

    def _load_here(self) -> Total:
        """An output inside this process is seen by no other."""
        run = read_run(self._storage)
        assert run is not None
        loader = Loader(self._storage, run, self._job, tell=self._tell)
        with contextlib.closing(loader):
            for name in loader.pending():
                loader.load(name)
            return loader.finish()

    def _tell(self, text: str) -> None:
        if self._listen is not None:
            self._listen(Note(text=text))


@contextlib.contextmanager
def loading(
    opened: Opened, storage: Storage, slot: Slot, listen: Listener | None
) -> Iterator[Loading]:
    """Load along with what is done inside."""
    found = Loading(opened, storage, slot, listen)
    try:
        yield found
    finally:
        found.stop()


def with_loaded(summary: Summary, result: Total | str | None, job: Job) -> Summary:
    """The summary, with what became of loading."""
    if result is None:
        return summary
    code = summary.exit_code
    if isinstance(result, str):
        return msgspec.structs.replace(
            summary, sink=result, exit_code=code if code not in (0, 4) else 3
        )
    told = [(one.place, one.reason) for one in result.told]
    words = "; ".join([total_line(result, job.sink.to), *result.notes])
    code = 4 if result.refused and not code else code
    return msgspec.structs.replace(summary, sink=words, not_loaded=told, exit_code=code)
