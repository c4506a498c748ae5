"""Commits -> a store: each once, again after a failure, the index when all are there.

Promises: what the store has taken is on record; a store that does not answer is tried for `sink.retry_s`, counted from
when it last took something; then the rest is left, and the sentence names the command that goes on.
Knows nothing of: processes, which commits are still to come.
Memory: one task.
"""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import xxhash

from rowmill import rundir
from rowmill.config import Job
from rowmill.errors import BadSink, RowmillError, SinkDown, SinkFailed
from rowmill.journal import Commit, read_commit
from rowmill.load.ledger import MOST_TOLD, Ledger, Loaded
from rowmill.load.rows import RunRows
from rowmill.load.targets import (
    check_target,
    choice_of,
    open_target,
    place_of,
    refusing,
    wanted,
)
from rowmill.outcomes import dimensions_of
from rowmill.record import Cut, Record
from rowmill.storage import Storage
from rowmill.write.keyed.points import Choice, PointMaker, Points, Refusal
from rowmill.write.keyed.protocol import KeyedSink

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0

Tell = Callable[[str], None]


class Total(msgspec.Struct, frozen=True):
    """What a store holds of a run now."""

    rows: int
    vectors: int
    refused: int
    told: list[Refusal]
    notes: list[str] = []


class Loader:
    """Loads one run into one store."""

    def __init__(
        self,
        storage: Storage,
        run: tuple[Record, Cut],
        job: Job,
        *,
        tell: Tell,
        sets: Sequence[str] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to load; nothing is opened yet.

        Args:
            job: whose `[sink]` says where to.
            tell: told of what people should know.
            sets: settings of `[sink]`, as `--set` takes them, that the run itself does not have.
            pause: waits so many seconds.
        """
        record, cut = run
        self._storage, self._job, self._tell, self._pause = storage, job, tell, pause
        self._sink, self._sets = job.sink, sets
        self._prefix = record.prefix
        self._run = xxhash.xxh3_64_hexdigest(record.token.encode())
        self._cut = cut
        self._ledger = Ledger(storage, place_of(job))
        self._open: KeyedSink | None = None
        self._dimensions = 0
        self._is_checked = False

    @functools.cached_property
    def _rows(self) -> RunRows:
        # The source is looked at only where there is something to load.
        return RunRows(self._storage, self._cut, self._prefix)

    @functools.cached_property
    def _choice(self) -> Choice:
        return choice_of(self._job, self._rows.schema)

    def pending(self) -> list[str]:
        """Names of the commits that count and are not loaded, in order of tasks."""
        latest = {rundir.task_of_commit(n): n for n in self._storage.list(rundir.COMMITS)}
        return [name for name in latest.values() if not self._is_loaded(name)]

    def _is_loaded(self, name: str) -> bool:
        """Rows that were refused are tried once more where other settings decide on them."""
        found = self._ledger.by_commit.get(name)
        return found is not None and (not found.refused or found.by == refusing(self._job))

    def load(self, name: str) -> None:
        """Load one commit.

        Raises: SinkFailed.
        """
        self._persistently(lambda: self._load(name))

    def examine(self) -> None:
        """See that the store takes such vectors, before any is loaded; one that does not answer is no mistake yet.

        Raises: ConfigError.
        """
        commits = (read_commit(self._storage, name) for name in self.pending())
        self._dimensions = next(filter(None, map(self._length, commits)), 0)
        with contextlib.suppress(SinkDown):
            check_target(
                self._sink,
                self._prefix,
                choice=self._choice,
                schema=self._rows.schema,
                dimensions=self._dimensions,
            )

    def check(self) -> None:
        """See that the store holds what is on record; else all of it is loaded again.

        Raises: SinkFailed.
        """
        self._persistently(self._check)

    def finish(self) -> Total:
        """All is there: build the index.

        Raises: SinkFailed.
        """
        notes: list[str] = []

        def finish() -> None:
            self._check()
            target = self._target()
            notes[:] = target.finish(builds_index=self._sink.index == "auto")
            missing = self._ledger.num_vectors - target.count()
            if missing > 0:
                notes.append(
                    f"{missing:,} vectors lie under keys that other rows have too; the last one counts:"
                    " set `sink.key` to a column that does not repeat"
                )

        if self._ledger.num_vectors:
            self._persistently(finish)
        return self.total(notes)

    def total(self, notes: list[str] | None = None) -> Total:
        """What is loaded so far."""
        every = self._ledger.counted()
        return Total(
            rows=sum(one.rows for one in every),
            vectors=sum(one.vectors for one in every),
            refused=sum(one.refused for one in every),
            told=[refusal for one in every for refusal in one.told][:MOST_TOLD],
            notes=notes or [],
        )

    def close(self) -> None:
        """Let go of the store."""
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- one commit ---------------------------------------------------------------------

    def _load(self, name: str) -> None:
        commit = read_commit(self._storage, name)
        if not self._dimensions:
            self._dimensions = self._length(commit)
        loaded = _Tally()
        if self._dimensions:
            self._check()
            parts = self._parts(commit, loaded)
            self._target().put(self._run, self._mark(name, commit), parts)
            for _ in parts:
                # The store knew the mark, and looked at none: they are counted all the same.
                pass
        self._ledger.add(name, loaded.loaded(refusing(self._job)))

    def _mark(self, name: str, commit: Commit) -> str:
        """What stands in the store for these vectors; another where refused rows are tried with other settings."""
        mark = f"{name.removeprefix(rundir.COMMITS).removesuffix('.json')}-{commit.epoch}"
        before = self._ledger.by_commit.get(name)
        if before is None or not before.refused:
            return mark
        return f"{mark}-{xxhash.xxh3_64_hexdigest(refusing(self._job).encode())}"

    def _length(self, commit: Commit) -> int:
        return next(
            filter(None, (dimensions_of(part.outcomes) for part in self._rows.of(commit))), 0
        )

    def _parts(self, commit: Commit, tally: _Tally) -> Iterator[Points]:
        maker = self._maker()
        for answered in self._rows.of(commit):
            points, refused = maker.points(*answered)
            tally.add(points, refused)
            if len(points):
                yield points

    def _maker(self) -> PointMaker:
        how = wanted(self._sink, self._prefix)
        holds = self._target(is_bare=True).holds
        return PointMaker(self._rows.schema, self._choice, how, holds, self._dimensions)

    # -- the store ----------------------------------------------------------------------

    def _target(self, *, is_bare: bool = False) -> KeyedSink:
        """The open store; its table is ready, unless `is_bare`."""
        if self._open is None:
            self._open = open_target(self._sink, self._prefix)
            if not is_bare and self._dimensions:
                self._open.prepare(self._maker().schema, self._dimensions)
        return self._open

    def _check(self) -> None:
        if self._is_checked:
            return
        if not self._dimensions and self._ledger.num_vectors:
            name = next(n for n, one in self._ledger.by_commit.items() if one.vectors)
            self._dimensions = self._length(read_commit(self._storage, name))
        if self._dimensions:
            target = self._target()
            self._compare(target)
            self._is_checked = True

    def _compare(self, target: KeyedSink) -> None:
        marks = target.marks(self._run)
        there = target.count()
        should = self._ledger.num_vectors
        # Made anew, and filled by another run: marks go with the table.
        is_another = marks is not None and not marks and should > 0
        if there < should or is_another:
            held = "none of them" if is_another else f"{there:,} vectors"
            self._tell(
                f"the store holds {held}, and {should:,} were loaded: all are loaded again"
            )
            target.forget(self._run)
            self._ledger.clear()
        elif marks and not there:
            # Loaded, noted there alone, and emptied since.
            target.forget(self._run)

    def _persistently(self, act: Callable[[], None]) -> None:
        """Act until the store takes it, or the time for it is up."""
        began = time.monotonic()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                act()
            except SinkDown as error:
                self._let_go()
                left = self._sink.retry_s - (time.monotonic() - began)
                if left <= 0:
                    reason = f"the store does not answer for {self._sink.retry_s:g} s: {error}"
                    raise self._failed(reason) from error
                if pause_s == FIRST_PAUSE_S:
                    self._tell(f"the vector store does not answer, trying again: {error}")
                self._pause(min(pause_s, left))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except BadSink as error:
                reason = str(error).removeprefix(f"`{self._sink.to}`: ")
                raise self._failed(reason, then=" once that is mended") from error
            else:
                return

    def _let_go(self) -> None:
        with contextlib.suppress(RowmillError):
            self.close()
        self._open = None

    def _failed(self, reason: str, *, then: str = "") -> SinkFailed:
        """What people are told; `then`: when the command can go on, where that is not at once."""
        sets = [word for text in self._sets for word in ("--set", text)]
        path = self._job.output.path
        command = shlex.join(["rowmill", "export", path, "--to", self._sink.to, *sets])
        way_on = f"no row is lost, all vectors are in `{path}`: `{command}` goes on{then}"
        return SinkFailed(sink=self._sink.to, reason=reason, way_on=way_on)


class _Tally:
    """Counts what becomes of the rows of one commit."""

    def __init__(self) -> None:
        self._vectors = self._rows = self._refused = 0
        self._told: list[Refusal] = []

    def add(self, points: Points, refused: list[Refusal]) -> None:
        """Count rows of a batch."""
        self._vectors += len(points)
        self._rows += int((points.chunks == 0).sum())
        self._refused += len(refused)
        self._told += refused[: MOST_TOLD - len(self._told)]

    def loaded(self, by: str) -> Loaded:
        """The sums; rows were refused by these settings."""
        return Loaded(
            self._rows, self._vectors, self._refused, self._told, by if self._refused else ""
        )
