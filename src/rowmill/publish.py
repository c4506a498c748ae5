"""Commits + source -> results: outcomes in input or completion order beside the columns of their rows.

Promises: a part is visible once it is whole; the last thing written is `done.json`, naming the parts;
every non-blank source line is in exactly one part, or publishing fails; the same run gives the same files;
a part that is there and would come out the same is kept.
Knows nothing of: engines, leases.
Memory: a few thousand rows a part under way, a row group of a table, one task in completion order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import xxhash

from rowmill import rundir
from rowmill.errors import StorageError
from rowmill.join.apart import INLINE_BYTES, answer, cores, run_apart, uncollected
from rowmill.join.lines import joined, joined_by_completion
from rowmill.join.outcomes import OutcomeLines, check_merged, merged
from rowmill.join.part import Columns, PartDone, PartSpec
from rowmill.join.parting import (
    JSON_LINES,
    Shape,
    column_limits,
    cut_parts,
    made_of,
    num_units,
)
from rowmill.journal import Commit, Counts
from rowmill.outcomes import decode, dimensions_of
from rowmill.record import Cut, known_length
from rowmill.rows import pack_key
from rowmill.storage import Storage, address_of, open_storage
from rowmill.storage.drafts import open_draft
from rowmill.write.form import Form
from rowmill.write.packed import open_packer
from rowmill.write.segments import read_lines_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.write.sinks import Sink

MOST_GROWTH = 2
"""So many times as many parts as there are may be called for, before all are cut anew."""


class Done(msgspec.Struct, frozen=True):
    """`done.json`: the results are whole."""

    parts: list[PartDone]
    counts: Counts
    made_of: str
    """Digest of the commits' names and of what else shapes the files."""
    notes: list[str] = []
    """Columns whose type is not that of each file, for people."""
    shape: str = ""
    """Digest of what shapes the files beside the commits."""


def publish(
    storage: Storage,
    cut: Cut,
    commits: Sequence[Commit],
    *,
    prefix: str,
    part_bytes: int,
    form: Form = JSON_LINES,
    answers: str = "",
    written: Callable[[], list[PartDone] | None] | None = None,
) -> Done:
    """Write the results of a run whose tasks are all committed; what is published already stays as it is.

    Args:
        answers: JSON Schema that the job holds its answers to; empty for none.
        written: parts that were written along with the run, where they could be.
    """
    shape = Shape(prefix, part_bytes, form)
    whole = _made_of(storage, shape)
    done = read_done(storage)
    if done is not None and done.made_of == whole:
        return done
    # From here on the old files go: nobody must take them for whole.
    storage.remove(rundir.DONE)
    if cut.lots is not None:
        check_merged(storage, commits)
    columns = Columns()
    parts = written() if written is not None else None
    if parts is not None:
        specs = cut_parts(cut, commits, shape, before=parts)
        parts = [_told(part, spec) for part, spec in zip(parts, specs, strict=True)]
    else:
        if not form.is_lines:
            from rowmill.join.columns import carried_columns

            columns = carried_columns(
                column_limits(cut),
                form,
                prefix,
                answers=answers,
                dimensions=vector_length(storage, commits) if form.has_vectors else 0,
            )
        before = done.parts if done is not None and done.shape == shape.digest else []
        specs = [_with(spec, columns) for spec in _cut(cut, commits, shape, before)]
        try:
            parts = _write_parts(storage, specs, before)
        except StorageError:
            _sweep(storage, set())
            raise
    _sweep(storage, {part.name for part in parts})
    counts = Counts()
    for commit in commits:
        counts.merge(commit.counts)
    done = Done(parts, counts, whole, columns.notes, shape.digest)
    storage.replace(rundir.DONE, msgspec.json.format(msgspec.json.encode(done), indent=1))
    return done


def vector_length(storage: Storage, commits: Iterable[Commit]) -> int:
    """Numbers in each vector of a run, as it was written down, else by the first that is there; 0 where none is."""
    if known := known_length(storage):
        return known
    for commit in commits:
        for ref in commit.segments:
            for lines in read_lines_of(storage, ref):
                found = dimensions_of(map(decode, lines))
                if found:
                    return found
    return 0


def _with(spec: PartSpec, columns: Columns) -> PartSpec:
    return msgspec.structs.replace(spec, columns=columns)


def _cut(
    cut: Cut, commits: Sequence[Commit], shape: Shape, before: Sequence[PartDone]
) -> list[PartSpec]:
    """As before, unless outcomes grew so much since that far more parts are called for."""
    anew = cut_parts(cut, commits, shape)
    kept = cut_parts(cut, commits, shape, before=before) if before else anew
    return kept if MOST_GROWTH * len(kept) >= len(anew) else anew


def _told(part: PartDone, spec: PartSpec) -> PartDone:
    return msgspec.structs.replace(part, num_units=num_units(spec), made_of=made_of(spec))


def _write_parts(
    storage: Storage, specs: list[PartSpec], before: Sequence[PartDone]
) -> list[PartDone]:
    """Write what is not there yet, as other processes where that pays."""
    there = {part.name: part for part in before if storage.size(part.name) == part.num_bytes}
    by_name: dict[str, PartDone] = {}
    todo: list[PartSpec] = []
    for spec in specs:
        part = there.get(spec.name)
        if part is not None and part.made_of == made_of(spec):
            by_name[spec.name] = part
        else:
            todo.append(spec)
    for spec, part in zip(todo, _written(storage, todo), strict=True):
        by_name[spec.name] = _told(part, spec)
    return [by_name[spec.name] for spec in specs]


def _written(storage: Storage, specs: list[PartSpec]) -> list[PartDone]:
    size = sum(shard.weight for spec in specs for shard in spec.shards)
    size += sum(ref.num_bytes for s in specs for c in s.commits for ref in c.segments)
    pays = len(specs) > 1 and cores() > 1 and size >= INLINE_BYTES
    url = address_of(storage)
    if url and pays:
        requests = [msgspec.json.encode(msgspec.structs.replace(s, url=url)) for s in specs]
        replies = run_apart("rowmill.publish", requests, where=rundir.RESULTS)
        return [msgspec.json.decode(reply, type=PartDone) for reply in replies]
    with uncollected():
        return [write_part(storage, spec) for spec in specs]


def read_done(storage: Storage) -> Done | None:
    """What is published; None where nothing is, or where the record of it is damaged: it is published anew then."""
    if storage.size(rundir.DONE) is None:
        return None
    try:
        return msgspec.json.decode(storage.read(rundir.DONE), type=Done)
    except msgspec.DecodeError:
        return None


def _made_of(storage: Storage, shape: Shape) -> str:
    names = "\n".join(storage.list(rundir.COMMITS))
    return xxhash.xxh3_64_hexdigest(f"{shape.digest}\n{names}".encode())


def write_part(storage: Storage, spec: PartSpec) -> PartDone:
    """Write one results file from the commits of its specification."""
    in_order = spec.form.order == "input"
    if spec.form.is_lines:
        lines = (
            joined(spec, _outcomes(storage, spec))
            if in_order
            else joined_by_completion(storage, spec)
        )
        return write_lines(storage, spec.name, lines, spec.form)
    from rowmill.join.tables import TableJoiner, batches, batches_by_completion

    joiner = TableJoiner(spec.columns, spec.prefix, spec.form)
    rows = (
        batches(joiner, spec, _outcomes(storage, spec))
        if in_order
        else batches_by_completion(storage, joiner, spec)
    )
    return write_table(storage, spec.name, joiner.schema, rows, spec.form)


def _outcomes(storage: Storage, spec: PartSpec) -> OutcomeLines:
    first_key = pack_key(spec.shards[0].index, 0) if spec.shards else 0
    return OutcomeLines(merged(storage, spec.commits, first_key))


class _PartFile:
    """A results file in the making: under a hidden name, then its own."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._name = name
        self._digest, self._size = xxhash.xxh3_64(), 0
        self._draft = open_draft(storage, name)

    def write(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._size += len(piece)
        self._draft.write(piece)

    def finish(self, num_rows: int) -> PartDone:
        self._draft.finish()
        return PartDone(self._name, num_rows, self._size, self._digest.hexdigest())

    def abandon(self) -> None:
        self._draft.abandon()


def write_lines(
    storage: Storage, name: str, pieces: Iterator[list[bytes]], form: Form = JSON_LINES
) -> PartDone:
    """Write one results file of lines."""
    num_rows = 0
    file = _PartFile(storage, name)
    packer = open_packer(form.compression)
    try:
        for lines in pieces:
            num_rows += len(lines)
            file.write(packer.pack(b"".join(lines)))
        file.write(packer.finish())
        return file.finish(num_rows)
    except BaseException:
        file.abandon()
        raise


def write_table(
    storage: Storage, name: str, schema: pa.Schema, rows: Iterator[pa.RecordBatch], form: Form
) -> PartDone:
    """Write one results file of batches."""
    import pyarrow as pa

    from rowmill.write.sinks import open_sink

    file = _PartFile(storage, name)
    try:
        num_rows = _fill(open_sink(form, schema, file.write), rows)
        return file.finish(num_rows)
    except pa.ArrowException as error:
        file.abandon()
        raise _not_held(name, form, error) from error
    except BaseException:
        file.abandon()
        raise


def _fill(sink: Sink, rows: Iterator[pa.RecordBatch]) -> int:
    num_rows = 0
    try:
        for batch in rows:
            num_rows += batch.num_rows
            sink.add(batch)
        sink.finish()
    except BaseException:
        sink.abandon()
        raise
    return num_rows


def _not_held(name: str, form: Form, error: Exception) -> StorageError:
    """The words of the library may hold a row's text, its kind of error does not."""
    reason = (
        f"a value cannot be written as {form.format} ({type(error).__name__});"
        " set `output.format` to another format and give the same command again"
    )
    return StorageError(path=name, reason=reason)


def _sweep(storage: Storage, keep: set[str]) -> None:
    """Remove what an earlier, differently cut publishing left."""
    for name in storage.list(rundir.RESULTS):
        if name not in keep:
            storage.remove(name)


def _part_main(request: bytes) -> bytes:
    """What a publishing process does: a PartSpec becomes a PartDone."""
    spec = msgspec.json.decode(request, type=PartSpec)
    return msgspec.json.encode(write_part(open_storage(spec.url), spec))


if __name__ == "__main__":
    sys.exit(answer(_part_main))
