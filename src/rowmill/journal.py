"""Which rows are done: outcomes go into the open task's segment, and count once the task is committed.

Promises: a row is taken once, whoever answers it again; a commit is create-only, so of two workers that finish
a task one is heard; a commit names its segments with counts and checksums, and readers use only those.
Knows nothing of: engines, rows' contents, results.
Memory: a key and 24 bytes a row of each open task.
Source: create-only commits over fenced segments as in lakehouse tables; design/001-disk-layout.md.
"""

from __future__ import annotations

import datetime
import itertools
import threading
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.outcomes import COPIED, FAILED, TRUNCATED, VIOLATED, Outcomes, is_violated, pack
from rowmill.rows import Outcome
from rowmill.storage import Storage
from rowmill.write.segments import OpenSegment, RowIndex, SegmentRef, scan, write_sorted

MAX_ERROR_SHAPES = 50
VIOLATION = "violation"
"""Names, beside kinds of failure, the rows whose answer breaks what it is held to."""
NO_SEGMENT = rundir.SegmentName(-1, -1, -1)


class Counts(msgspec.Struct):
    """Sums over outcomes."""

    ok: int = 0
    failed: int = 0
    copied: int = 0
    truncated: int = 0
    violations: int = 0
    """Rows with an answer that breaks its schema, expression or choices."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    errors: dict[str, int] = {}
    """`kind<TAB>sentence` with digits blotted out -> rows."""
    examples: dict[str, str] = {}
    """The same -> the sentence of one of those rows, whole."""

    @property
    def done(self) -> int:
        """Rows with an outcome, of either fate."""
        return self.ok + self.failed

    def add(self, outcomes: Outcomes) -> None:
        """Count more outcomes."""
        marks = outcomes.marks
        is_failed = (marks & FAILED) > 0
        num_failed = int(np.count_nonzero(is_failed))
        self.failed += num_failed
        self.ok += len(outcomes) - num_failed
        self.truncated += int(np.count_nonzero((marks & (TRUNCATED | FAILED)) == TRUNCATED))
        self.copied += int(np.count_nonzero(marks & COPIED))
        self.violations += int(np.count_nonzero(marks & VIOLATED))
        # A copy's tokens are told in its row; they were asked for once.
        asked = outcomes.tokens[:, (marks & COPIED) == 0]
        prompt, cached, output = asked.sum(axis=1, dtype=np.int64).tolist()
        self.prompt_tokens += prompt
        self.cached_tokens += cached
        self.output_tokens += output
        if num_failed:
            for outcome in outcomes.take(np.flatnonzero(is_failed).tolist()).unpack():
                sentence = outcome.error or ""
                self._count_error(f"{outcome.error_kind}\t{error_shape(sentence)}", sentence)

    def merge(self, other: Counts) -> None:
        """Add the sums of other outcomes."""
        for name in self.__struct_fields__[:-2]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for shape, rows in other.errors.items():
            self._count_error(shape, other.examples.get(shape, ""), rows)

    def top_errors(self, most: int) -> list[tuple[str, str, int]]:
        """(kind, sentence of one of them, rows) of the most frequent failures."""
        found = Counter(self.errors).most_common(most)
        return [(shape.partition("\t")[0], self.examples[shape], rows) for shape, rows in found]

    def _count_error(self, shape: str, example: str, rows: int = 1) -> None:
        if shape not in self.errors and len(self.errors) >= MAX_ERROR_SHAPES:
            shape = "other\tother failures"
        self.examples.setdefault(shape, example)
        self.errors[shape] = self.errors.get(shape, 0) + rows


def error_shape(sentence: str) -> str:
    """The sentence with numbers blotted out, so that like failures are counted together."""
    shape = "".join("#" if c.isdigit() else c for c in sentence)
    while "##" in shape:
        shape = shape.replace("##", "#")
    return shape[:300]


class Paid(msgspec.Struct):
    """Tokens that were paid for: those of outcomes that later ones took the place of, too."""

    prompt_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: Paid | Counts | None, times: int = 1) -> None:
        """Add those of others; `times` -1: take them off."""
        if other is not None:
            self.prompt_tokens += times * other.prompt_tokens
            self.output_tokens += times * other.output_tokens


class Commit(msgspec.Struct, frozen=True):
    """What makes a task's segments count."""

    task: int
    epoch: int
    worker: str
    num_rows: int
    first_key: int
    last_key: int
    segments: list[SegmentRef]
    counts: Counts
    finished: str = ""
    """When it was made: wall clock of its worker, ISO 8601, UTC."""
    arrival: str = ""
    """Object with the places in key order of the rows, in the order in which they were answered, as uint32;
    empty where that is key order."""
    replaced: Paid | None = None
    """Of outcomes that retries asked anew; None: there were none."""

    def paid(self) -> Paid:
        """For the task, in all."""
        return paid_of(self.counts, self.replaced)


class Again(msgspec.Struct, frozen=True):
    """A committed task whose failed rows are asked again; the last outcome of a row wins, the old ones stay."""

    before: Commit
    retry: int
    """Number of this retry, counted from 1."""
    kinds: tuple[str, ...]
    """Kinds of failure to ask again, or `VIOLATION`; empty: all failures."""
    left: tuple[str, ...] = ()
    """Segments of earlier retries that were stopped before they committed this task."""

    def is_asked_again(self, outcome: Outcome) -> bool:
        """Whether this row is to be asked again."""
        if outcome.status == "error":
            return not self.kinds or outcome.error_kind in self.kinds
        return VIOLATION in self.kinds and is_violated(outcome)

    def is_old(self, name: str) -> bool:
        """Whether a segment was written before this retry."""
        return name in self.left or any(ref.name == name for ref in self.before.segments)

    def segments(self, storage: Storage) -> list[str]:
        """The old commit's segments, and what interrupted tries of this retry and of others left."""
        later = [
            name
            for name in segments_of(storage, self.before.task)
            if (rundir.parse_segment(name) or NO_SEGMENT).epoch > self.before.epoch
        ]
        return [*(ref.name for ref in self.before.segments), *later]


class TaskLog:
    """Outcomes of one task that this worker holds the lease of."""

    def __init__(
        self, storage: Storage, task: int, epoch: int, again: Again | None = None
    ) -> None:
        """Take over what earlier epochs of the task left, torn tails passed over."""
        self.task, self.epoch = task, epoch
        self.done: set[int] = set()
        self.counts = Counts()
        self._storage, self._again = storage, again
        self._replaced = paid_of(again.before.replaced if again else None)
        self._index = RowIndex()
        names = again.segments(storage) if again else segments_of(storage, task)
        self._last_in = _last_segments(storage, names) if again and len(names) > 1 else {}
        self._old = [self._take_over(i, name) for i, name in enumerate(names)]
        self.num_resumed = len(self.done)
        self._names = (rundir.segment(task, epoch, n) for n in itertools.count())
        self._segment = OpenSegment(storage, self._names, self._index)
        self._lock = threading.Lock()

    def paid(self) -> Paid:
        """For the task so far."""
        return paid_of(self.counts, self._replaced)

    def put(self, outcomes: Outcomes) -> Outcomes:
        """Write outcomes, those of rows that are done already dropped. Returns: the ones that were new."""
        with self._lock:
            keys = outcomes.keys.tolist()
            if not self.done.isdisjoint(keys):
                outcomes = outcomes.take([i for i, k in enumerate(keys) if k not in self.done])
                keys = outcomes.keys.tolist()
            if keys:
                self._segment.put(outcomes, segment=len(self._old))
                self.done.update(keys)
                self.counts.add(outcomes)
            return outcomes

    def checkpoint(self) -> None:
        """Make what was put safe against loss of power."""
        with self._lock:
            self._segment.flush()

    def close(self) -> None:
        """Leave the task uncommitted, what was put durable: another epoch goes on from here."""
        with self._lock:
            self._segment.close()

    def discard(self) -> None:
        """Leave the task uncommitted, and nothing of what this epoch wrote."""
        with self._lock:
            for ref in self._segment.close():
                self._storage.remove(ref.name)

    def commit(self, worker: str) -> bool:
        """Make the task count.

        Returns: False where another worker committed it before; its rows stand, ours are dropped.
        """
        with self._lock:
            try:
                refs = self._final_segments()
            except StorageError:
                # The one who committed first removed segments it does not name, ours among them.
                if self._storage.size(self._commit_name()) is None:
                    raise
                return False
            arrival = self._keep_arrival()
            content = self._commit(worker, refs, arrival)
            is_ours = self._storage.create(self._commit_name(), content)
            if is_ours:
                earlier = generations(self._storage, self.task) if self._again else []
                history = [ref for _, commit in earlier for ref in commit.segments]
                self._drop_all_but({ref.name for ref in (*refs, *history)})
            return is_ours

    def _commit_name(self) -> str:
        return rundir.commit(self.task, self._again.retry if self._again else 0)

    def _final_segments(self) -> list[SegmentRef]:
        if not self._old and not self._index.is_sorted:
            ref = self._segment.close_sorted(self._index)
            if ref is not None:
                return [ref]
        refs = [*self._old, *self._segment.close()]
        # What an earlier epoch left may be in no disk's memory yet: only our own segment was synced just now.
        if len(refs) == 1 and self._index.is_sorted and not self._old:
            return refs
        return [write_sorted(self._storage, next(self._names), refs, self._index)]

    def _keep_arrival(self) -> str:
        """Sorting loses the order of answers: it is kept beside, 4 bytes a row."""
        if self._index.is_sorted:
            return ""
        name = rundir.arrival(self.task, self.epoch)
        self._storage.create(name, self._index.arrival(), durable=False)
        return name

    def _commit(self, worker: str, refs: list[SegmentRef], arrival: str) -> bytes:
        commit = Commit(
            task=self.task,
            epoch=self.epoch,
            worker=worker,
            num_rows=len(self.done),
            first_key=min(self.done, default=0),
            last_key=max(self.done, default=0),
            segments=refs,
            counts=self.counts,
            finished=datetime.datetime.now(datetime.UTC).isoformat(),
            arrival=arrival,
            replaced=self._replaced if self._again else None,
        )
        return msgspec.json.format(msgspec.json.encode(commit), indent=1)

    def _take_over(self, number: int, name: str) -> SegmentRef:
        again = self._again
        is_old = again is not None and again.is_old(name)

        def is_replaced(outcome: Outcome) -> bool:
            """Of a retry, the last outcome of a row counts, unless that is to be asked again."""
            if self._last_in.get(outcome.key, number) == number and not (
                is_old and again is not None and again.is_asked_again(outcome)
            ):
                return False
            if outcome.copied_from is None:
                self._replaced.add(Paid(outcome.prompt_tokens, outcome.output_tokens))
            return True

        leave = is_replaced if again else None
        ref, outcomes = scan(
            self._storage, name, self._index, segment=number, done=self.done, leave=leave
        )
        self.counts.add(pack(outcomes))
        return ref

    def _drop_all_but(self, names: set[str]) -> None:
        """Remove segments the commit does not name: they never count, and would be read at no time."""
        for name in segments_of(self._storage, self.task):
            if name not in names:
                self._storage.remove(name)


def paid_of(*parts: Paid | Counts | None) -> Paid:
    """The sum."""
    paid = Paid()
    for part in parts:
        paid.add(part)
    return paid


def _last_segments(storage: Storage, names: Sequence[str]) -> dict[int, int]:
    """Key -> the last of the segments that has an outcome of it."""
    last: dict[int, int] = {}
    for number, name in enumerate(names):
        _, outcomes = scan(storage, name, RowIndex(), segment=number, done=set())
        last.update(dict.fromkeys((outcome.key for outcome in outcomes), number))
    return last


def segments_of(storage: Storage, task: int) -> list[str]:
    """Names of all segments of a task, oldest epoch first."""
    return storage.list(rundir.segments_of(task))


def read_commits(storage: Storage) -> dict[int, Commit]:
    """The commit that counts by task, in order of tasks: the last retry's, where there were any.

    Raises: StorageError where one is damaged.
    """
    commits = (read_commit(storage, name) for name in storage.list(rundir.COMMITS))
    return {commit.task: commit for commit in commits}


def generations(storage: Storage, task: int) -> list[tuple[int, Commit]]:
    """(number of the retry, 0 for the first asking; commit) of one task, oldest first.

    Raises: StorageError where one is damaged.
    """
    names = storage.list(rundir.commit(task).removesuffix(".json"))
    found = [(rundir.retry_of_commit(name), read_commit(storage, name)) for name in names]
    return sorted(found, key=lambda generation: generation[0])


def read_commit(storage: Storage, name: str) -> Commit:
    """One commit.

    Raises: StorageError where it is damaged.
    """
    try:
        return msgspec.json.decode(storage.read(name), type=Commit)
    except msgspec.DecodeError as error:
        reason = "is damaged; put back a copy, or start anew elsewhere"
        raise StorageError(path=name, reason=reason) from error
