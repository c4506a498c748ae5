"""Outcome lines + source rows -> result batches: typed carried columns with rowmill's own behind them.

Promises: see the package; the carried columns are those of the file, or of one schema that holds all files;
all parts of a run have one schema.
Knows nothing of: how batches are written.
Memory: one batch of the source; one task in completion order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rowmill.join.lines import check_keys
from rowmill.join.outcomes import OutcomeLines, arrival, lines_of
from rowmill.join.part import Columns, PartSpec, salvage_of, unpacked_schema
from rowmill.outcomes import key_of
from rowmill.read import in_turn, read_spans, read_tables
from rowmill.record import Cut, Places
from rowmill.rows import Partitions, Shard, pack_key
from rowmill.storage import Storage
from rowmill.validate.lines import split_columns
from rowmill.validate.salvage import members_of
from rowmill.write.form import Form
from rowmill.write.json_columns import columns_of, fits, split_lines, to_batch
from rowmill.write.outcome_columns import OutcomeColumns
from rowmill.write.sound_texts import with_sound_texts
from rowmill.write.unify import fit

if TYPE_CHECKING:
    import pyarrow as pa

Carried = Callable[[Sequence[int]], "pa.RecordBatch"]
"""Carried columns of some rows; the argument are those among them that have no columns."""
Chunk = tuple[list[int], Carried]
"""Neighbouring rows of a shard: their ordinals, and their columns once their outcomes are known."""


class TableJoiner:
    """Joins the rows of one run."""

    def __init__(self, columns: Columns, prefix: str, form: Form) -> None:
        """Rows with `columns`, written as `form` says, names of ours beginning with `prefix`."""
        import pyarrow as pa

        self._carried = unpacked_schema(columns.schema)
        self._json = unpacked_schema(columns.json_schema)
        self._salvage = salvage_of(prefix, form)
        self._own = OutcomeColumns(
            prefix, columns.answers, own=form.own, dimensions=columns.dimensions
        )
        self.schema: pa.Schema = pa.schema(
            [*self._carried, *self._own.schema], metadata=self._carried.metadata
        )

    def chunks(self, shard: Shard, first: int, stop: int) -> Iterator[Chunk]:
        """The rows of a slice."""
        if shard.format == "jsonl":
            for spans in read_spans(shard, first=first, stop=stop):
                yield (
                    [n for n, _ in spans],
                    self._of_lines([line for _, line in spans], shard.partitions),
                )
            return
        names = set(self._carried.names)
        for table in read_tables(shard, first=first, stop=stop, wants=names.__contains__):
            batch = with_sound_texts(table.batch) if table.bad else table.batch
            yield table.ordinals.tolist(), self._of_batch(batch)

    def batch(
        self, shard: Shard, ordinals: Sequence[int], lines: list[bytes], carried: Carried
    ) -> pa.RecordBatch:
        """Result rows of a chunk, whose outcomes are `lines`."""
        import pyarrow as pa

        places = [f"{shard.name}:{shard.first_line + n}" for n in ordinals]
        own, unreadable = self._own.columns(places, lines)
        arrays = [*carried(unreadable).columns, *own]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _of_batch(self, batch: pa.RecordBatch) -> Carried:
        return lambda _: fit(batch, self._carried)

    def _of_lines(self, lines: list[bytes], folders: Partitions) -> Carried:
        def carried(unreadable: Sequence[int]) -> pa.RecordBatch:
            held = list(lines)
            for at in unreadable:
                held[at] = self._salvaged(held[at], folders)
            columns = columns_of(split_lines(held, split_columns))
            return fit(to_batch(columns, len(held), self._json), self._carried)

        return carried

    def _salvaged(self, line: bytes, folders: Partitions) -> bytes:
        """A line with what of it can be carried; of one that is no object, what fits its column."""
        columns = self._salvage.whole(line)
        if columns is None:
            columns = {
                name: raw
                for name, raw in self._salvage.id_alone(line, folders).items()
                if name in self._json.names and fits(raw, self._json.field(name))
            }
        return b"{%b}" % members_of(columns).rstrip(b",")


def batches(
    joiner: TableJoiner, spec: PartSpec, outcomes: OutcomeLines
) -> Iterator[pa.RecordBatch]:
    """Result batches of a part in input order; `outcomes` stand at its first row."""
    for shard, _, limit in in_turn(spec.whole_slices()):
        for ordinals, carried in joiner.chunks(shard, 0, limit):
            found = outcomes.take(len(ordinals))
            check_keys(spec.name, shard, ordinals, found, pack_key(shard.index, 0))
            yield joiner.batch(shard, ordinals, found, carried)


def batches_by_completion(
    storage: Storage, joiner: TableJoiner, spec: PartSpec
) -> Iterator[pa.RecordBatch]:
    """Result batches of a part, task by task, rows of a task as they were answered."""
    import pyarrow as pa

    for commit, slices in zip(spec.commits, spec.slices, strict=True):
        outcomes = OutcomeLines(iter([lines_of(storage, commit)]))
        made: list[pa.RecordBatch] = []
        for number, first, stop in slices:
            shard = spec.shards[number]
            for ordinals, carried in joiner.chunks(shard, first, stop):
                found = outcomes.take(len(ordinals))
                check_keys(spec.name, shard, ordinals, found, pack_key(shard.index, 0))
                made.append(joiner.batch(shard, ordinals, found, carried))
        table = pa.Table.from_batches(made, schema=joiner.schema)
        order = arrival(storage, commit, table.num_rows)
        yield from table.take(pa.array(order, pa.int64())).to_batches()


def batches_of_rows(
    joiner: TableJoiner, cut: Cut, lines_of: Callable[[int], Iterator[list[bytes]]]
) -> Iterator[pa.RecordBatch]:
    """Result batches of the rows that have an outcome, also of a run that is not whole."""
    import pyarrow as pa

    places = Places(cut)
    for task in range(cut.num_tasks):
        line_by_key = {key_of(line): line for part in lines_of(task) for line in part}
        for shard, first, stop in in_turn(places.task_slices(task)):
            for ordinals, carried in joiner.chunks(shard, first, stop):
                keys = [pack_key(shard.index, n) for n in ordinals]
                there = [at for at, key in enumerate(keys) if key in line_by_key]
                absent = sorted(set(range(len(keys))) - set(there))
                picked = _picked(carried, absent, pa.array(there, pa.int64()))
                found = [line_by_key[keys[at]] for at in there]
                yield joiner.batch(shard, [ordinals[at] for at in there], found, picked)


def _picked(carried: Carried, absent: list[int], there: pa.Array) -> Carried:
    """Columns of some rows of a chunk; whether the others are rows at all is not known yet."""

    def columns(unreadable: Sequence[int]) -> pa.RecordBatch:
        places = there.to_pylist()
        return carried([*absent, *(places[at] for at in unreadable)]).take(there)

    return columns
