"""Outcome lines + source lines -> result lines.

Promises: see the package; columns are carried byte for byte.
Knows nothing of: types.
Memory: a few thousand rows; one task in completion order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rowmill.errors import StorageError
from rowmill.join.outcomes import MERGED_ROWS, OutcomeLines, arrival, lines_of
from rowmill.join.part import PartSpec, salvage_of
from rowmill.outcomes import key_of
from rowmill.read import in_turn, read_spans
from rowmill.record import Cut, Places
from rowmill.rows import Shard, pack_key
from rowmill.storage import Storage
from rowmill.write.form import Form
from rowmill.write.results import ResultLines, key_start


def joined(spec: PartSpec, outcomes: OutcomeLines) -> Iterator[list[bytes]]:
    """Result lines of a part, a few thousand at a time; `outcomes` stand at its first row."""
    results = _results(spec.prefix, spec.form)
    for shard, _, limit in in_turn(spec.whole_slices()):
        first_key, first_line = pack_key(shard.index, 0), shard.first_line
        for spans in read_spans(shard, stop=limit):
            found = outcomes.take(len(spans))
            starts = check_keys(spec.name, shard, [n for n, _ in spans], found, first_key)
            rows = [
                (first_line + ordinal, source, len(start), outcome)
                for (ordinal, source), start, outcome in zip(spans, starts, found, strict=True)
            ]
            yield list(results.lines(shard.name, rows, shard.partitions))


def _results(prefix: str, form: Form) -> ResultLines:
    return ResultLines(prefix, form.own, salvage_of(prefix, form).members)


def check_keys(
    part: str, shard: Shard, ordinals: Sequence[int], found: list[bytes], first_key: int
) -> list[bytes]:
    """What the outcome lines of these rows begin with.

    Raises: StorageError where a row's outcome is not the next one.
    """
    starts = [key_start(first_key + ordinal) for ordinal in ordinals]
    if len(found) < len(ordinals) or not all(map(bytes.startswith, found, starts)):
        keys = {key_of(line) for line in found}
        missing = [n for n in ordinals if first_key + n not in keys]
        raise no_outcome(part, shard, missing[0] if missing else 0)
    return starts


def no_outcome(part: str, shard: Shard, ordinal: int) -> StorageError:
    """What is raised where source and segments do not fit."""
    line = shard.first_line + ordinal
    reason = f"no outcome for row {shard.name}:{line}; the input or a segment changed"
    return StorageError(path=part, reason=reason)


def joined_by_completion(storage: Storage, spec: PartSpec) -> Iterator[list[bytes]]:
    """Result lines of a part, task by task, rows of a task as they were answered."""
    results = _results(spec.prefix, spec.form)
    for commit, slices in zip(spec.commits, spec.slices, strict=True):
        lines = lines_of(storage, commit)
        sources: list[tuple[Shard, int, bytes]] = []
        for number, first, stop in slices:
            shard = spec.shards[number]
            spans = [s for part in read_spans(shard, first=first, stop=stop) for s in part]
            at = len(sources)
            check_keys(
                spec.name,
                shard,
                [n for n, _ in spans],
                lines[at : at + len(spans)],
                pack_key(shard.index, 0),
            )
            sources += [(shard, n, source) for n, source in spans]
        rows = [(*sources[i], lines[i]) for i in arrival(storage, commit, len(sources))]
        for begin in range(0, len(rows), MERGED_ROWS):
            yield list(_lines(results, rows[begin : begin + MERGED_ROWS]))


def _lines(
    results: ResultLines, rows: Sequence[tuple[Shard, int, bytes, bytes]]
) -> Iterator[bytes]:
    for index, group in groupby(rows, key=lambda row: row[0].index):
        of_shard = list(group)
        shard = of_shard[0][0]
        yield from results.lines(
            shard.name,
            [
                (shard.first_line + n, source, len(key_start(pack_key(index, n))), outcome)
                for _, n, source, outcome in of_shard
            ],
            shard.partitions,
        )


def joined_rows(
    cut: Cut,
    lines_of: Callable[[int], Iterator[list[bytes]]],
    prefix: str,
    form: Form,
) -> Iterator[list[bytes]]:
    """Result lines of the rows that have an outcome, task by task: also of a run that is not whole."""
    results = _results(prefix, form)
    places = Places(cut)
    for task in range(cut.num_tasks):
        line_by_key = {key_of(line): line for part in lines_of(task) for line in part}
        for shard, first, stop in in_turn(places.task_slices(task)):
            for spans in read_spans(shard, first=first, stop=stop):
                keyed = [(pack_key(shard.index, n), n, source) for n, source in spans]
                rows = [
                    (shard.first_line + n, source, len(key_start(key)), line_by_key[key])
                    for key, n, source in keyed
                    if key in line_by_key
                ]
                yield list(results.lines(shard.name, rows, shard.partitions))
