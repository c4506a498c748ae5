"""What a run is: its identity, how it was cut, and who made it; written once, at the run's start.

Promises: a later start with another identity is refused, keys, old and new values named; tasks are never cut again.
Knows nothing of: outcomes, engines.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill import rundir
from rowmill.errors import RunMismatch, StorageError
from rowmill.plan.lots import Lots
from rowmill.read import SourceFile
from rowmill.rows import ORDINAL_BITS, ORDINAL_MASK, Shard, unpack_key
from rowmill.storage import ObjectStorage, Storage
from rowmill.storage.addresses import is_remote

T = TypeVar("T")

MIN_TASK_ROWS, MAX_TASK_ROWS = 1_000, 50_000
SHOWN_CHARS = 60


class Record(msgspec.Struct, frozen=True):
    """`run.json`."""

    token: str
    """Whoever shows it may work on this output while its owner lives."""
    identity: dict[str, Any]
    """Settings that change answers; a job with others is refused."""
    job: dict[str, Any]
    """The whole job as it was given at the first start; secrets are references in it."""
    reasons: dict[str, str]
    """Derived value -> why."""
    versions: dict[str, str]
    files: list[SourceFile]
    started: str
    """Wall clock, ISO 8601, UTC."""
    prefix: str
    """What the names of result columns begin with."""


class Tasks(msgspec.Struct, frozen=True):
    """`plan/tasks.json`: tasks are ranges of positions, cut once."""

    task_rows: int
    num_lines: int
    """Lines that belong to the run: all, or fewer under a limit."""
    is_sorted: bool = False
    """Tasks of the first start are lots (`plan/lots.json`), not ranges of positions."""


class Addition(msgspec.Struct, frozen=True):
    """`plan/append-N.json`: files that joined the run after its first start; create-only, in order."""

    files: list[SourceFile]
    shards: list[Shard]

    @property
    def num_lines(self) -> int:
        """Lines of its shards."""
        return sum(shard.num_lines for shard in self.shards)


class Cut(msgspec.Struct, frozen=True):
    """How the input was cut: shards end to end make positions, tasks are ranges of positions.

    Each addition begins a task of its own, so tasks of before stay what they were; positions between the end of
    the last task and that beginning belong to no line.
    """

    shards: list[Shard]
    task_rows: int
    num_lines: int
    """Lines that belong to the run."""
    additions: tuple[tuple[int, int], ...] = ()
    """(first shard, first position) of each addition."""
    lots: Lots | None = None
    """How rows were parted into the tasks of the first start, where they are no ranges of positions: as many lots as
    there would be ranges, so that what joins later begins where it would."""

    @property
    def num_tasks(self) -> int:
        """How many tasks there are."""
        return -(-self.end // self.task_rows)

    @property
    def most_rows(self) -> int:
        """Rows of the run as far as known before it is read: lines, and of what was sorted, rows."""
        if self.lots is None:
            return self.num_lines
        blank = self.first_lines - sum(self.lots.rows)
        return self.num_lines - blank

    @property
    def first_joined(self) -> int:
        """The first shard that joined after the first start; one past the last where none did."""
        return self.additions[0][0] if self.additions else len(self.shards)

    @property
    def first_lines(self) -> int:
        """Lines of the first start."""
        return self.num_lines - sum(s.num_lines for s in self.shards[self.first_joined :])

    @property
    def end(self) -> int:
        """One past the last position."""
        if not self.additions:
            return self.num_lines
        first, position = self.additions[-1]
        return position + sum(shard.num_lines for shard in self.shards[first:])

    def with_addition(self, addition: Addition) -> Cut:
        """The same, with further shards behind."""
        position = self.num_tasks * self.task_rows
        return Cut(
            shards=[*self.shards, *addition.shards],
            task_rows=self.task_rows,
            num_lines=self.num_lines + addition.num_lines,
            additions=(*self.additions, (len(self.shards), position)),
            lots=self.lots,
        )

    def joined_names(self) -> set[str]:
        """Names of the files that joined after the first start."""
        return {shard.name for shard in self.shards[self.first_joined :]}

    def generations(self) -> list[range]:
        """Indices of the shards of the first start, and of each addition."""
        edges = [0, *(first for first, _ in self.additions), len(self.shards)]
        return [range(start, stop) for start, stop in itertools.pairwise(edges)]

    def firsts(self) -> list[int]:
        """Position of each shard's first line, and one past the last."""
        starts = dict(self.additions)
        firsts, at = [], 0
        for index, shard in enumerate(self.shards):
            at = starts.get(index, at)
            firsts.append(at)
            at += shard.num_lines
        return [*firsts, at]


class Places:
    """Keys, positions, tasks and lines of one cut, turned into one another."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self._firsts = cut.firsts()
        self._first_array = np.array(self._firsts, np.int64)

    def is_lot(self, task: int) -> bool:
        """Whether the task is a lot: its rows stand anywhere in the input of the first start."""
        return self.cut.lots is not None and task < self.cut.lots.number

    def is_of_lots(self, key: int) -> bool:
        """Whether a row is in a lot: its key does not tell in which."""
        return self.cut.lots is not None and key >> ORDINAL_BITS < self.cut.first_joined

    def task_lines(self, task: int) -> int:
        """Lines of a task; of a lot, rows."""
        if self.cut.lots is not None and self.is_lot(task):
            return self.cut.lots.rows[task]
        return sum(stop - first for _, first, stop in self.task_slices(task))

    def holds(self, key: int) -> bool:
        """Whether a line belongs to the run: `run.limit` leaves those behind it out."""
        shard, ordinal = unpack_key(key)
        is_joined = shard >= self.cut.first_joined
        return is_joined or self._firsts[shard] + ordinal < self.cut.first_lines

    def task_of(self, key: int) -> int:
        """Task that a row belongs to, of those that are ranges."""
        shard, ordinal = unpack_key(key)
        return (self._firsts[shard] + ordinal) // self.cut.task_rows

    def tasks_of(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Task of each of R rows. Shapes: R uint64 -> R int64."""
        shards = (keys >> np.uint64(ORDINAL_BITS)).astype(np.int64)
        ordinals = (keys & np.uint64(ORDINAL_MASK)).astype(np.int64)
        return (self._first_array[shards] + ordinals) // self.cut.task_rows

    def place_of(self, key: int) -> str:
        """`FILE:LINE` of a row."""
        shard = self.cut.shards[key >> ORDINAL_BITS]
        return f"{shard.name}:{shard.first_line + (key & ORDINAL_MASK)}"

    def slices(self, start: int, stop: int) -> Iterator[tuple[Shard, int, int]]:
        """(shard, first ordinal, one past the last) that make up positions `start` to `stop`."""
        at = bisect.bisect_right(self._firsts, start) - 1
        while at < len(self.cut.shards) and self._firsts[at] < stop:
            shard, first = self.cut.shards[at], self._firsts[at]
            begin, end = max(start - first, 0), min(stop - first, shard.num_lines)
            if end > begin:
                yield shard, begin, end
            at += 1

    def task_slices(self, task: int) -> Iterator[tuple[Shard, int, int]]:
        """The slices of one task; of a lot, of the range that would be in its place."""
        start = task * self.cut.task_rows
        return self.slices(start, min(start + self.cut.task_rows, self.cut.end))

    def all_slices(self) -> Iterator[tuple[Shard, int, int]]:
        """The slices of the whole run."""
        return self.slices(0, self.cut.end)


def cut(shards: list[Shard], *, num_lines: int, task_rows: int | None) -> Cut:
    """Cut tasks: a hundredth of the input each, 1,000 to 50,000 rows, unless `task_rows` says otherwise."""
    derived = min(max(num_lines // 100, MIN_TASK_ROWS), MAX_TASK_ROWS)
    return Cut(shards=shards, task_rows=task_rows or derived, num_lines=num_lines)


def write_run(storage: Storage, record: Record, cut_: Cut) -> None:
    """Write the cut, then `run.json`: a run exists once that is there.

    Workers that begin a run at the same moment cut it alike, as long as they see the same files; the first one's counts.

    Raises:
        RunMismatch: another worker began it over other files.
    """
    tasks = Tasks(cut_.task_rows, cut_.num_lines, is_sorted=cut_.lots is not None)
    if cut_.lots is not None:
        storage.replace(rundir.LOT_EDGES, msgspec.json.encode(cut_.lots))
    storage.replace(rundir.SHARDS, msgspec.json.Encoder().encode_lines(cut_.shards))
    storage.replace(rundir.TASKS, msgspec.json.encode(tasks))
    if storage.create(rundir.RUN, msgspec.json.format(msgspec.json.encode(record), indent=1)):
        return
    found = read_run(storage)
    if found is None or _shape(*found) != _shape(record, cut_):
        reason = (
            f"`{storage.url}`: another worker began this run over other files, or with other settings,"
            " at the same moment; see that the input stands still and run again"
        )
        raise RunMismatch(reason=reason, keys=["source"])


def _shape(record: Record, cut_: Cut) -> tuple[object, ...]:
    files = [msgspec.structs.replace(file, spool="") for file in record.files]
    return files, record.identity, cut_.task_rows, cut_.num_lines, cut_.lots


def read_run(storage: Storage) -> tuple[Record, Cut] | None:
    """The run that lies at the output, None where there is none.

    Raises: StorageError where what is written of it is damaged.
    """
    if storage.size(rundir.RUN) is None:
        return None
    record = _read(storage, rundir.RUN, msgspec.json.Decoder(Record).decode)
    tasks = _read(storage, rundir.TASKS, msgspec.json.Decoder(Tasks).decode)
    shards = _read(storage, rundir.SHARDS, msgspec.json.Decoder(Shard).decode_lines)
    if sum(shard.num_lines for shard in shards) < tasks.num_lines:
        raise _damaged(rundir.SHARDS)
    lots = None
    if tasks.is_sorted:
        lots = _read(storage, rundir.LOT_EDGES, msgspec.json.Decoder(Lots).decode)
    cut_ = Cut(shards, tasks.task_rows, tasks.num_lines, lots=lots)
    for name in sorted(storage.list(rundir.APPENDS)):
        addition = _read(storage, name, msgspec.json.Decoder(Addition).decode)
        cut_ = cut_.with_addition(addition)
        record = msgspec.structs.replace(record, files=[*record.files, *addition.files])
    moved = _moved(storage)
    files = [moved.get(file.name, file) for file in record.files]
    shards = [_in_place(shard, storage, moved) for shard in cut_.shards]
    return msgspec.structs.replace(record, files=files), msgspec.structs.replace(
        cut_, shards=shards
    )


def note_moves(
    storage: Storage, before: Sequence[SourceFile], now: Sequence[SourceFile]
) -> None:
    """Keep where files of a run were found, so that whoever is not told where they are finds them there.

    Args:
        before: files of the run, as it knew them.
        now: the same files, each where it was found with its content.
    """
    pairs = zip(before, now, strict=True)
    found = {new.name: new for old, new in pairs if old.path != new.path}
    if found:
        files = list((_moved(storage) | found).values())
        storage.replace(rundir.MOVED, msgspec.json.Encoder().encode_lines(files))


def _moved(storage: Storage) -> dict[str, SourceFile]:
    """Files that lie elsewhere than `run.json` says, by name."""
    if storage.size(rundir.MOVED) is None:
        return {}
    files = _read(storage, rundir.MOVED, msgspec.json.Decoder(SourceFile).decode_lines)
    return {file.name: file for file in files}


def _read(storage: Storage, name: str, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(storage.read(name))
    except msgspec.DecodeError as error:
        raise _damaged(name) from error


def _damaged(name: str) -> StorageError:
    return StorageError(
        path=name, reason="is damaged; put back a copy, or start anew elsewhere"
    )


def _in_place(shard: Shard, storage: Storage, moved: Mapping[str, SourceFile]) -> Shard:
    """A shard where its file lies now; a spooled one where the run does: its folder may have been moved."""
    if shard.frame is None:
        file = moved.get(shard.name)
        return msgspec.structs.replace(shard, path=file.path) if file else shard
    name = rundir.SPOOL + shard.path.rpartition("/")[2]
    path = storage.path(name)
    if path is None and isinstance(storage, ObjectStorage) and is_remote(storage.url):
        return msgspec.structs.replace(shard, path=storage.where(name))
    return msgspec.structs.replace(shard, path=str(path)) if path else shard


def write_addition(storage: Storage, cut_: Cut, addition: Addition) -> None:
    """Let files join the run.

    Args:
        cut_: with the addition.

    Raises:
        RunMismatch: others joined at the same moment.
    """
    name = rundir.append(len(cut_.additions))
    if not storage.create(name, msgspec.json.encode(addition)):
        reason = "other files joined this run just now; run the same command again"
        raise RunMismatch(reason=reason, keys=["source"])


class Vectors(msgspec.Struct, frozen=True):
    """`plan/vectors.json`: what all vectors of the run have in common."""

    dimensions: int


def known_length(storage: Storage) -> int:
    """Numbers in each vector of the run, as its first start that knew wrote it down; 0 where none did."""
    if storage.size(rundir.VECTORS) is None:
        return 0
    return _read(storage, rundir.VECTORS, msgspec.json.Decoder(Vectors).decode).dimensions


def check_same(old: dict[str, Any], new: dict[str, Any], output: str) -> None:
    """Refuse a job of another identity.

    Raises:
        RunMismatch: names each key with its old and new value.
    """
    # Through JSON, so that tuples and lists, or absent and null, are no difference.
    new = msgspec.json.decode(msgspec.json.encode(new))
    keys = [k for k in sorted({*old, *new}) if old.get(k) != new.get(k)]
    if keys:
        changes = "; ".join(
            f"`{k}`: {_shown(old.get(k))} -> {_shown(new.get(k))}" for k in keys
        )
        reason = (
            f"`{output}` holds a run of another job ({changes}); take another `-o`,"
            " or give the same settings to resume"
        )
        raise RunMismatch(reason=reason, keys=keys)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
