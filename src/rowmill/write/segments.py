"""Outcomes -> segments: where answers of one task lie before they count.

A segment is a JSON object a row, its key first. On a local disk it is appended to,
and what a kill tore off is passed over by `scan`; in an object store each checkpoint is a whole object.

Promises: a line that `scan` returns was written whole; nothing is ever changed once written.
Knows nothing of: tasks' leases, commits, what becomes of outcomes.
Memory: an index of 24 bytes a row of the open task; the outcomes of one checkpoint where objects cannot be appended to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from rowmill.errors import StorageError
from rowmill.outcomes import Outcomes, decode, key_of
from rowmill.rows import Outcome
from rowmill.storage import AlreadyThere, Appender, Storage

READ_BYTES = 4 * 2**20
PROBE_BYTES = 32 * 2**10
_KEY_BYTES = 64
"""A line's key lies within its first bytes."""

Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


class SegmentRef(msgspec.Struct, frozen=True):
    """A segment, or the part of it that counts: what a commit names."""

    name: str
    num_rows: int
    num_bytes: int
    """Length of the part that counts: a fenced-off writer may still append behind it."""
    digest: str
    """xxh3_64 of that part, hex."""


class RowIndex:
    """Where each row of a task lies: its key, and the place of its line.

    Shapes: a piece holds, for R rows, keys (uint64), starts and stops (bytes in the segment, int64).
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[Keys, int, Numbers, Numbers]] = []
        self._last_key = -1
        self.is_sorted = True
        """Whether rows lie in key order already."""

    def add(self, keys: Keys, segment: int, starts: Numbers, stops: Numbers) -> None:
        """Rows of one stretch of a segment."""
        if not len(keys):
            return
        rises = int(keys[0]) > self._last_key and bool(np.all(keys[1:] > keys[:-1]))
        self.is_sorted = self.is_sorted and rises
        self._last_key = int(keys[-1])
        self._pieces.append((keys, segment, starts, stops))

    def in_key_order(self) -> Iterator[tuple[int, int, int]]:
        """(segment, start, stop) of every row, by key."""
        if not self._pieces:
            return
        starts, stops = (np.concatenate([piece[i] for piece in self._pieces]) for i in (2, 3))
        segments = np.repeat(
            [piece[1] for piece in self._pieces], [len(piece[0]) for piece in self._pieces]
        )
        order = self._order()
        yield from zip(
            segments[order].tolist(), starts[order].tolist(), stops[order].tolist(), strict=True
        )

    def arrival(self) -> bytes:
        """Place in key order of each row, in the order in which rows came: uint32, little-endian."""
        order = self._order()
        ranks = np.empty(len(order), "<u4")
        ranks[order] = np.arange(len(order), dtype="<u4")
        return ranks.tobytes()

    def _order(self) -> Numbers:
        return np.argsort(np.concatenate([piece[0] for piece in self._pieces]), kind="stable")


class OpenSegment:
    """Segments that one worker writes for one task, under names of its own epoch."""

    def __init__(self, storage: Storage, names: Iterator[str], index: RowIndex) -> None:
        self._storage, self._names, self._index = storage, names, index
        self._appender: Appender | None = None
        self._name = ""
        self._pending: list[bytes] = []
        self._digest = xxhash.xxh3_64()
        self._num_bytes = self._num_rows = 0
        self._closed: list[SegmentRef] = []

    def put(self, outcomes: Outcomes, *, segment: int) -> None:
        """Write outcomes; on a local disk they survive the death of this process when this returns.

        Args:
            segment: number of this writer's first segment in the index.
        """
        if not self._name:
            self._begin()
        stops = outcomes.stops() + self._num_bytes
        starts = np.concatenate(([self._num_bytes], stops[:-1]))
        self._index.add(outcomes.keys, segment + len(self._closed), starts, stops)
        self._write(outcomes.lines)
        self._num_rows += len(outcomes)

    def flush(self) -> None:
        """Make what was put safe: fsync the open file, or close the object."""
        if self._appender is not None:
            self._appender.sync()
        elif self._pending:
            self.close()

    def close(self) -> list[SegmentRef]:
        """End the open segment, durable; all segments written so far, in order."""
        if self._appender is not None:
            self._appender.sync()
            self._appender.close()
            self._appender = None
        elif self._pending:
            self._create(b"".join(self._pending))
            self._pending = []
        if self._name:
            ref = SegmentRef(
                self._name, self._num_rows, self._num_bytes, self._digest.hexdigest()
            )
            self._closed.append(ref)
            self._name = ""
        return self._closed

    def close_sorted(self, index: RowIndex) -> SegmentRef | None:
        """End the open segment with its rows in key order; None where some of them are written already.

        Args:
            index: of these rows alone.
        """
        if self._closed or not self._pending:
            return None
        content = memoryview(b"".join(self._pending))
        content = memoryview(b"".join(content[a:b] for _, a, b in index.in_key_order()))
        self._pending = [bytes(content)]
        self._digest = xxhash.xxh3_64(content)
        (ref,) = self.close()
        return ref

    def _create(self, content: bytes) -> None:
        try:
            self._storage.create(self._name, content)
        except StorageError as error:
            reason = (
                f"{error.fields['reason']}; {self._num_rows:,} answers since the last checkpoint"
                " are not kept, they will be asked again"
            )
            raise StorageError(path=error.fields["path"], reason=reason) from error

    def _begin(self) -> None:
        self._digest.reset()
        self._num_bytes = self._num_rows = 0
        while True:
            self._name = next(self._names)
            if not self._storage.can_append:
                return
            # A name may be taken where a power cut undid the lease of the epoch that wrote it.
            with contextlib.suppress(AlreadyThere):
                self._appender = self._storage.appender(self._name)
                return

    def _write(self, content: bytes) -> None:
        if self._appender is not None:
            self._appender.write(content)
        else:
            self._pending.append(content)
        self._digest.update(content)
        self._num_bytes += len(content)


def scan(
    storage: Storage,
    name: str,
    index: RowIndex,
    *,
    segment: int,
    done: set[int],
    leave: Callable[[Outcome], bool] | None = None,
) -> tuple[SegmentRef, list[Outcome]]:
    """Read what a dead writer left: whole lines go into `index`, a torn tail does not count.

    Rows whose key is in `done` already are passed over, as are those that `leave` says so of;
    keys taken are added to `done`.
    """
    content = storage.read(name)
    outcomes: list[Outcome] = []
    starts: list[int] = []
    stops: list[int] = []
    start = 0
    while newline := content.find(b"\n", start) + 1:
        try:
            outcome = decode(content[start:newline])
        except msgspec.DecodeError:
            break
        if outcome.key not in done and not (leave and leave(outcome)):
            done.add(outcome.key)
            outcomes.append(outcome)
            starts.append(start)
            stops.append(newline)
        start = newline
    keys = np.array([o.key for o in outcomes], np.uint64)
    index.add(keys, segment, np.array(starts, np.int64), np.array(stops, np.int64))
    digest = xxhash.xxh3_64_hexdigest(content[:start])
    return SegmentRef(name, len(outcomes), start, digest), outcomes


def write_sorted(
    storage: Storage, name: str, refs: Sequence[SegmentRef], index: RowIndex
) -> SegmentRef:
    """One segment with the rows of `index` in key order, out of the segments `refs`."""
    contents = [memoryview(storage.read_range(ref.name, 0, ref.num_bytes)) for ref in refs]
    lines = [contents[segment][start:stop] for segment, start, stop in index.in_key_order()]
    content = b"".join(lines)
    storage.create(name, content)
    return SegmentRef(name, len(lines), len(content), xxhash.xxh3_64_hexdigest(content))


def read_lines_of(storage: Storage, ref: SegmentRef) -> Iterator[list[bytes]]:
    """Lines of the part of a segment that counts, a few thousand at a time, without their line feeds.

    Raises:
        StorageError: the bytes are not those that were committed.
    """
    digest = xxhash.xxh3_64()
    yield from _lines(storage, ref, 0, READ_BYTES, digest)
    if digest.hexdigest() != ref.digest:
        raise _changed(ref)


def read_lines_from(
    storage: Storage, ref: SegmentRef, key: int, *, piece_bytes: int = PROBE_BYTES
) -> Iterator[list[bytes]]:
    """Lines of a segment in key order from `key` on, a few at a time; nobody looks whether they are those committed.

    Raises:
        StorageError: it cannot be read.
    """
    start = _start_before(storage, ref, key) if key else 0
    is_there = not key
    for lines in _lines(storage, ref, start, piece_bytes, xxhash.xxh3_64()):
        if not is_there:
            lines = [line for line in lines if key_of(line) >= key]
            is_there = bool(lines)
        if lines:
            yield lines


def check_segment(storage: Storage, ref: SegmentRef) -> None:
    """See that a segment is what was committed.

    Raises:
        StorageError: it is not.
    """
    digest = xxhash.xxh3_64()
    for start in range(0, ref.num_bytes, READ_BYTES):
        digest.update(
            storage.read_range(ref.name, start, min(start + READ_BYTES, ref.num_bytes))
        )
    if digest.hexdigest() != ref.digest:
        raise _changed(ref)


def _lines(
    storage: Storage, ref: SegmentRef, start: int, piece_bytes: int, digest: xxhash.xxh3_64
) -> Iterator[list[bytes]]:
    rest = b""
    for at in range(start, ref.num_bytes, piece_bytes):
        piece = storage.read_range(ref.name, at, min(at + piece_bytes, ref.num_bytes))
        digest.update(piece)
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        yield lines
    if rest:
        raise _changed(ref)


def _start_before(storage: Storage, ref: SegmentRef, key: int) -> int:
    """Where a line begins that is the first with `key` or a greater one, or stands little before it."""
    low, high = 0, ref.num_bytes
    while high - low > PROBE_BYTES:
        middle = (low + high) // 2
        found = _line_after(storage, ref, middle, high)
        if found is not None and found[1] < key:
            low = found[0]
        else:
            high = middle
    return low


def _line_after(
    storage: Storage, ref: SegmentRef, start: int, stop: int
) -> tuple[int, int] | None:
    """(first byte, key) of the first line that begins behind `start` and before `stop`."""
    for at in range(start, stop, PROBE_BYTES):
        piece = storage.read_range(ref.name, at, at + PROBE_BYTES + _KEY_BYTES)
        newline = piece.find(b"\n", 0, min(PROBE_BYTES, stop - at - 1))
        if newline >= 0:
            return at + newline + 1, key_of(piece[newline + 1 :])
    return None


def _changed(ref: SegmentRef) -> StorageError:
    return StorageError(path=ref.name, reason="its bytes are not those that were committed")


def read_outcomes(storage: Storage, ref: SegmentRef) -> Iterator[list[Outcome]]:
    """Outcomes of the part of a segment that counts. Raises: StorageError as `read_lines_of`."""
    for lines in read_lines_of(storage, ref):
        yield [decode(line) for line in lines]
