"""Commits + source -> results: outcomes in input order beside the columns of their rows.

Promises: a part is visible once it is whole; the last thing written is `results/done.json`, naming the parts;
every non-blank source line is in exactly one part, or publishing fails.
Knows nothing of: engines, leases.
Memory: a few thousand rows a part under way.
"""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

import msgspec
import xxhash

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.flow import die_with_parent
from rowmill.journal import Commit, Counts
from rowmill.outcomes import key_of
from rowmill.read import read_spans
from rowmill.record import Cut, Places
from rowmill.rows import Shard, pack_key
from rowmill.storage import LocalStorage, Storage, open_storage
from rowmill.storage.drafts import open_draft
from rowmill.write.results import ResultLines, key_start
from rowmill.write.segments import read_lines_of

MERGED_ROWS = 2048
INLINE_BYTES = 32 * 2**20
"""Input under this is published in this process: a further one costs more than it saves."""


class PartSpec(msgspec.Struct, frozen=True):
    """One results file: which shards it covers and what lies in them."""

    name: str
    shards: list[Shard]
    limit: list[int]
    """One past the last ordinal that belongs to the run, for each shard."""
    commits: list[Commit]
    prefix: str
    url: str = ""


class PartDone(msgspec.Struct, frozen=True):
    """A results file as it was written."""

    name: str
    num_rows: int
    num_bytes: int
    digest: str


class Done(msgspec.Struct, frozen=True):
    """`results/done.json`: the results are whole."""

    parts: list[PartDone]
    counts: Counts
    made_of: str
    """Digest of the commits' names and of what else shapes the files."""


def publish(
    storage: Storage,
    cut: Cut,
    commits: Sequence[Commit],
    *,
    prefix: str,
    part_bytes: int,
    written: Callable[[], list[PartDone] | None] | None = None,
) -> Done:
    """Write the results of a run whose tasks are all committed; what is published already stays as it is.

    Args:
        written: parts that were written along with the run, where they could be.
    """
    made_of = _made_of(storage, prefix, part_bytes)
    done = read_done(storage)
    if done is not None and done.made_of == made_of:
        return done
    parts = written() if written is not None else None
    if parts is None:
        parts = _write_parts(storage, cut_parts(cut, commits, prefix, part_bytes))
    _sweep(storage, {part.name for part in parts})
    counts = Counts()
    for commit in commits:
        counts.merge(commit.counts)
    done = Done(parts=parts, counts=counts, made_of=made_of)
    storage.replace(rundir.DONE, msgspec.json.format(msgspec.json.encode(done), indent=1))
    return done


def _write_parts(storage: Storage, specs: list[PartSpec]) -> list[PartDone]:
    if isinstance(storage, LocalStorage) and len(specs) > 1 and cores() > 1:
        with ThreadPoolExecutor(cores()) as pool:
            return list(pool.map(lambda spec: _write_apart(storage, spec), specs))
    return [write_part(storage, spec) for spec in specs]


def read_done(storage: Storage) -> Done | None:
    """What is published; None where nothing is."""
    if storage.size(rundir.DONE) is None:
        return None
    return msgspec.json.decode(storage.read(rundir.DONE), type=Done)


def _made_of(storage: Storage, prefix: str, part_bytes: int) -> str:
    names = "\n".join(storage.list(rundir.COMMITS))
    return xxhash.xxh3_64_hexdigest(f"{prefix}\n{part_bytes}\n{names}".encode())


def write_part(storage: Storage, spec: PartSpec) -> PartDone:
    """Write one results file from the commits of its specification."""
    first_key = pack_key(spec.shards[0].index, 0)
    outcomes = OutcomeLines(merged(storage, spec.commits, first_key))
    return write_lines(storage, spec.name, joined(spec, outcomes))


def write_lines(storage: Storage, name: str, pieces: Iterator[list[bytes]]) -> PartDone:
    """Write one results file: under a hidden name, then its own."""
    num_rows = 0
    digest, size = xxhash.xxh3_64(), 0
    target = open_draft(storage, name)
    try:
        for lines in pieces:
            num_rows += len(lines)
            piece = b"".join(lines)
            digest.update(piece)
            size += len(piece)
            target.write(piece)
        target.finish()
    except BaseException:
        target.abandon()
        raise
    return PartDone(name, num_rows, size, digest.hexdigest())


def joined(spec: PartSpec, outcomes: OutcomeLines) -> Iterator[list[bytes]]:
    """Result lines of a part, a few thousand at a time; `outcomes` stand at its first row."""
    results = ResultLines(spec.prefix)
    for shard, limit in zip(spec.shards, spec.limit, strict=True):
        first_key, first_line = pack_key(shard.index, 0), shard.first_line
        for spans in read_spans(shard, stop=limit):
            found = outcomes.take(len(spans))
            starts = [key_start(first_key + ordinal) for ordinal, _ in spans]
            if len(found) < len(spans) or not all(map(bytes.startswith, found, starts)):
                raise _mismatch(spec, shard, spans, found)
            rows = [
                (first_line + ordinal, source, len(start), outcome)
                for (ordinal, source), start, outcome in zip(spans, starts, found, strict=True)
            ]
            yield list(results.lines(shard.name, rows))


def _mismatch(
    spec: PartSpec, shard: Shard, spans: list[tuple[int, bytes]], found: list[bytes]
) -> StorageError:
    keys = {key_of(line) for line in found}
    missing = [n for n, _ in spans if pack_key(shard.index, n) not in keys]
    line = shard.first_line + (missing[0] if missing else 0)
    reason = f"no outcome for row {shard.name}:{line}; the input or a segment changed"
    return StorageError(path=spec.name, reason=reason)


class OutcomeLines:
    """Lists of lines, taken in other lengths than they come in."""

    def __init__(self, parts: Iterator[list[bytes]]) -> None:
        self._parts, self._held, self._at = parts, list[bytes](), 0

    def take(self, rows: int) -> list[bytes]:
        """The next `rows` lines; fewer at the end."""
        while (
            len(self._held) - self._at < rows and (part := next(self._parts, None)) is not None
        ):
            self._held = self._held[self._at :] + part
            self._at = 0
        taken = self._held[self._at : self._at + rows]
        self._at += len(taken)
        return taken


def joined_rows(
    cut: Cut,
    lines_of: Callable[[int], Iterator[list[bytes]]],
    prefix: str,
) -> Iterator[list[bytes]]:
    """Result lines of the rows that have an outcome, task by task: also of a run that is not whole."""
    results = ResultLines(prefix)
    places = Places(cut)
    for task in range(cut.num_tasks):
        line_by_key = {key_of(line): line for part in lines_of(task) for line in part}
        for shard, first, stop in places.task_slices(task):
            for spans in read_spans(shard, first=first, stop=stop):
                keyed = [(pack_key(shard.index, n), n, source) for n, source in spans]
                rows = [
                    (shard.first_line + n, source, len(key_start(key)), line_by_key[key])
                    for key, n, source in keyed
                    if key in line_by_key
                ]
                yield list(results.lines(shard.name, rows))


def merged(
    storage: Storage, commits: Sequence[Commit], first_key: int
) -> Iterator[list[bytes]]:
    """Outcome lines of all commits in key order, from `first_key` on.

    Commits whose key ranges do not overlap are read one after the other; only those that do are merged.
    """
    runs: list[Commit] = []
    end = -1
    for commit in sorted(commits, key=lambda c: c.first_key):
        if runs and commit.first_key > end:
            yield from _merge(storage, runs, first_key)
            runs = []
        runs.append(commit)
        end = max(end, commit.last_key)
    yield from _merge(storage, runs, first_key)


def _merge(
    storage: Storage, commits: Sequence[Commit], first_key: int
) -> Iterator[list[bytes]]:
    streams = [_stream(storage, commit, first_key) for commit in commits]
    if len(streams) == 1:
        yield from streams[0]
        return
    rows = heapq.merge(*map(chain.from_iterable, streams), key=key_of)
    while part := list(islice(rows, MERGED_ROWS)):
        yield part


def _stream(storage: Storage, commit: Commit, first_key: int) -> Iterator[list[bytes]]:
    for ref in commit.segments:
        for lines in read_lines_of(storage, ref):
            if commit.first_key < first_key:
                yield [line for line in lines if key_of(line) >= first_key]
            else:
                yield lines


def cut_parts(
    cut: Cut, commits: Sequence[Commit], prefix: str, part_bytes: int
) -> list[PartSpec]:
    """Parts of about equal size, none much over `part_bytes` of input, as many as keep all cores at work."""
    limits: list[tuple[Shard, int]] = [
        (shard, stop) for shard, _, stop in Places(cut).slices(0, cut.num_lines)
    ]
    total = sum(shard.stop - shard.start for shard, _ in limits)
    num_parts = -(-total // part_bytes)
    if total >= INLINE_BYTES:
        num_parts = -(-max(num_parts, 1) // cores()) * cores()
    groups: list[list[tuple[Shard, int]]] = [[]]
    size = 0
    for shard, limit in limits:
        if groups[-1] and size >= len(groups) * total / max(num_parts, 1):
            groups.append([])
        groups[-1].append((shard, limit))
        size += shard.stop - shard.start
    return [_spec(i, group, commits, prefix) for i, group in enumerate(groups) if group]


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))


def _spec(
    number: int, group: list[tuple[Shard, int]], commits: Sequence[Commit], prefix: str
) -> PartSpec:
    first, last = pack_key(group[0][0].index, 0), pack_key(group[-1][0].index + 1, 0)
    return PartSpec(
        name=rundir.part(number),
        shards=[shard for shard, _ in group],
        limit=[limit for _, limit in group],
        commits=[
            c for c in commits if c.num_rows and c.last_key >= first and c.first_key < last
        ],
        prefix=prefix,
    )


def _sweep(storage: Storage, keep: set[str]) -> None:
    """Remove what an earlier, differently cut publishing left."""
    for name in storage.list(rundir.RESULTS):
        if name not in keep:
            storage.remove(name)


def _write_apart(storage: LocalStorage, spec: PartSpec) -> PartDone:
    """Write a part in a process of its own."""
    spec = msgspec.structs.replace(spec, url=str(storage.root))
    command = [sys.executable, "-m", "rowmill.publish"]
    done = subprocess.run(
        command, input=msgspec.json.encode(spec), stdout=subprocess.PIPE, check=False
    )
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=PartDone)
    path, _, reason = done.stdout.decode(errors="replace").partition("\n")
    if not reason:
        reason = f"publishing ended with status {done.returncode}"
    raise StorageError(path=path or spec.name, reason=reason)


def _part_main() -> int:
    """What a publishing process does: a PartSpec on stdin, a PartDone on stdout, or path and reason."""
    # A part written later, after a new start published anew, would stand in place of that one's.
    die_with_parent()
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=PartSpec)
    try:
        reply = msgspec.json.encode(write_part(open_storage(spec.url), spec))
    except StorageError as error:
        sys.stdout.write(f"{error.fields['path']}\n{error.fields['reason']}")
        return 3
    sys.stdout.buffer.write(reply)
    return 0


if __name__ == "__main__":
    sys.exit(_part_main())
