"""A commit + the source -> the answered rows of its task, with their columns and outcomes.

Promises: each answered row once, in the order of the input; columns have one schema in the whole run.
Knows nothing of: stores.
Memory: one batch of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rowmill.join.columns import carried_columns
from rowmill.join.lines import check_keys
from rowmill.join.outcomes import OutcomeLines, lines_of
from rowmill.join.part import unpacked_schema
from rowmill.join.parting import column_limits
from rowmill.join.tables import TableJoiner
from rowmill.journal import Commit
from rowmill.outcomes import decode
from rowmill.read import in_turn
from rowmill.record import Cut, Places
from rowmill.rows import Outcome, pack_key
from rowmill.storage import Storage
from rowmill.write.form import Form

if TYPE_CHECKING:
    import pyarrow as pa


class Answered(NamedTuple):
    """Rows that were answered."""

    places: list[str]
    carried: pa.RecordBatch
    outcomes: list[Outcome]


class RunRows:
    """The rows of one run."""

    def __init__(self, storage: Storage, cut: Cut, prefix: str) -> None:
        """Look at the source: its columns are known from here on."""
        form = Form("parquet")
        columns = carried_columns(column_limits(cut), form, prefix)
        self.schema: pa.Schema = unpacked_schema(columns.schema)
        self._storage, self._places = storage, Places(cut)
        self._joiner = TableJoiner(columns, prefix, form)

    def of(self, commit: Commit) -> Iterator[Answered]:
        """The answered rows of a task."""
        outcomes = OutcomeLines(iter([lines_of(self._storage, commit)]))
        for shard, first, stop in in_turn(self._places.task_slices(commit.task)):
            for ordinals, carried in self._joiner.chunks(shard, first, stop):
                lines = outcomes.take(len(ordinals))
                check_keys("commit", shard, ordinals, lines, pack_key(shard.index, 0))
                found = [decode(line) for line in lines]
                failed = [at for at, outcome in enumerate(found) if outcome.status != "ok"]
                batch = carried(failed)
                if failed:
                    ok = sorted(set(range(len(found))) - set(failed))
                    batch = batch.take(ok)
                    found = [found[at] for at in ok]
                    ordinals = [ordinals[at] for at in ok]
                places = [f"{shard.name}:{shard.first_line + n}" for n in ordinals]
                yield Answered(places, batch, found)
