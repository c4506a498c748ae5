"""The journey itself: Row -> Request -> Prompts -> Plan, window by window, ahead of the engine.

Promises: every row that is read ends in exactly one window, as something to ask, a copy, or an error outcome;
a bad row never stops another.
Knows nothing of: who answers, where outcomes lie.
Memory: one window here, and what the buffer between this and the engine holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Protocol

import msgspec

from rowmill.config import Job
from rowmill.errors import (
    ConfigError,
    DuplicateIds,
    InvalidRow,
    MissingColumn,
    RowError,
    Unreadable,
)
from rowmill.flow import Clock
from rowmill.forecast.gathered import Gathered
from rowmill.ids import SeenIds
from rowmill.measure import Measure
from rowmill.plan import Arranged, Lever, Plan, arrange, arrange_lot, plan
from rowmill.plan.pieces import cut_pieces
from rowmill.read import BadLine, in_turn, line_of, read_rows
from rowmill.record import Places
from rowmill.rows import (
    ORDINAL_BITS,
    AnyRow,
    Ids,
    Limits,
    Outcome,
    Request,
    Row,
    Shard,
    TableRow,
    unpack_key,
)
from rowmill.validate import Recipe, validate

MAX_NAMED_DUPLICATES = 5


class TaskRows(msgspec.Struct):
    """A task to be read: its slices, and the rows that are done already."""

    task: int
    slices: Iterable[tuple[Shard, int, int]]
    done: set[int]
    lot: Callable[[], Iterator[list[AnyRow | BadLine]]] | None = None
    """Its rows where it is a lot, in place of the slices."""


class Valid(msgspec.Struct):
    """Rows that will be planned at once, before they are measured."""

    requests: list[Request]
    rejects: list[Outcome]
    ends: list[tuple[int, int]]
    num_rows: int
    num_bytes: int = 0
    """Of the lines they came from."""
    lot: int | None = None
    """Task that all of these rows are of, where that is a lot."""
    behind: int = 0
    """Rows that are still to come, about."""


class Window(msgspec.Struct):
    """Rows planned at once."""

    plan: Plan
    rejects: list[Outcome]
    """Rows that fell out on the way."""
    ends: list[tuple[int, int]]
    """(task, rows) of the tasks whose last row is in this window or before."""
    num_rows: int
    num_bytes: int
    """Memory held, about."""
    lot: int | None = None
    """Task that all of these rows are of, where that is a lot."""

    def keys(self) -> list[int]:
        """Of all its rows, asked or not."""
        return [*self.plan.prompts.keys, *(outcome.key for outcome in self.rejects)]


class Known(Protocol):
    """Token ids that others made of a run's rows."""

    def ids_of(self, requests: Sequence[Request]) -> Mapping[int, Ids]:
        """By key, of those of the rows that are known, as `Measure.encoded` gives them."""
        ...


class Stations:
    """The stations rows pass before the engine, opened once."""

    def __init__(
        self,
        job: Job,
        *,
        limits: Limits,
        recipe: Recipe,
        measure: Measure,
        places: Places,
        known: Known | None = None,
    ) -> None:
        self.job, self.limits = job, limits
        self.recipe, self.measure, self.places = recipe, measure, places
        self._known = known
        self.num_known = 0
        """Rows whose token ids came from there."""
        self.num_read = self.num_rejected = 0
        """Rows of windows planned so far, and those of them that fell out."""
        self.num_validated = 0
        """Rows read and validated, measured or not."""
        self.num_missing = self.num_unreadable = 0
        self.first_missing: Outcome | None = None
        """Rows that lack the column the job asks with."""
        self.num_tokens = 0
        """Prompt tokens of the rows to ask in those windows."""
        self.measuring, self.planning = Clock(), Clock()  # of the one thread that does both
        self.levers: dict[str, Lever] = {}
        """What each lever did in them: the last window in which it was used, else the last."""
        self.gathered: Gathered | None = None
        """Where the first rows are kept for a forecast."""
        self.duplicates: dict[bytes, list[int]] = {}
        """Ids met more than once among the first rows -> keys of their rows."""
        self._seen = SeenIds(confirm=self._id_at)

    def windows(self, tasks: Iterable[TaskRows | None]) -> Iterator[Window]:
        """Plan the rows of `tasks`, in their order, window by window; None: plan now what was read so far."""
        return chain.from_iterable(map(self.planned, self.validated(tasks)))

    def validated(self, tasks: Iterable[TaskRows | None]) -> Iterator[Valid]:
        """The first half of `windows`: rows read and validated, not measured."""
        rows: list[AnyRow | BadLine] = []
        ends: list[tuple[int, int]] = []
        num_bytes = 0
        for task in tasks:
            if task is None:
                yield self._valid(rows, ends)
                rows, ends, num_bytes = [], [], 0
                continue
            if task.lot is not None:
                if rows:
                    yield self._valid(rows, ends)
                    rows, ends, num_bytes = [], [], 0
                yield self._valid_lot(task.task, task.lot(), task.done)
                continue
            count = 0
            for chunk in self._rows_of(task):
                count += len(chunk)
                fresh = self._not_done(chunk, task.done)
                rows += fresh
                num_bytes += _size(fresh)
                while self._is_window(rows, num_bytes):
                    # Rows of tasks that ended are fewer than a window, so they are all in this one.
                    yield self._valid(rows[: self.job.plan.window_rows], ends)
                    ends = []
                    rows = rows[self.job.plan.window_rows :]
                    num_bytes = _size(rows)
            ends.append((task.task, count))
            if not rows:
                yield self._valid([], ends)
                ends = []
        yield msgspec.structs.replace(self._valid(rows, ends), behind=0)

    def _valid_lot(
        self, task: int, chunks: Iterator[list[AnyRow | BadLine]], done: set[int]
    ) -> Valid:
        """A lot is a window, however many rows it has: that is what it was made for."""
        rows: list[AnyRow | BadLine] = []
        count = 0
        for chunk in chunks:
            count += len(chunk)
            rows += self._not_done(chunk, done)
        return msgspec.structs.replace(self._valid(rows, [(task, count)]), lot=task)

    def planned(self, valid: Valid) -> Iterator[Window]:
        """The second half of `windows`: arrange, then measure and plan, piece by piece.

        Tokenising lets other threads run; the engine has the first piece while the next is tokenised.
        """
        choose = arrange if valid.lot is None else arrange_lot
        with self.planning:
            arranged = choose(valid.requests, self.job.plan, self.limits, behind=valid.behind)
        self._note_levers(arranged.levers)
        known = self._known.ids_of(valid.requests) if self._known else {}
        pieces = cut_pieces(valid.requests, arranged.order)
        for number, requests in enumerate(pieces):
            window = self._planned(
                requests,
                arranged,
                known=known,
                rejects=valid.rejects if number == 0 else [],
                num_rows=len(requests)
                + (valid.num_rows - len(valid.requests) if number == 0 else 0),
                ends=valid.ends if number == len(pieces) - 1 else [],
            )
            window.lot = valid.lot
            yield window

    def _planned(
        self,
        requests: list[Request],
        arranged: Arranged,
        *,
        known: Mapping[int, Ids],
        rejects: list[Outcome],
        num_rows: int,
        ends: list[tuple[int, int]],
    ) -> Window:
        def reject(index: int, error: RowError) -> None:
            rejects.append(rejected(requests[index].key, error))

        with self.measuring:
            prompts = self.measure.prompts(requests, reject, known)
        self.num_known += sum(r.key in known for r in requests) if known else 0
        self.count(rejects, num_rows)
        with self.planning:
            planned = plan(prompts, self.job.plan, arranged)
        self.num_tokens += int(prompts.lengths().sum()) - sum(
            lever.saved_tokens for lever in planned.levers
        )
        self._note_levers(planned.levers)
        if (gathered := self.gathered) is not None and gathered.is_open:
            gathered.add_planned(planned)
        return Window(planned, rejects, ends, num_rows, prompts.num_bytes())

    def tried(self, rows: list[Request], *, is_lot: bool = True) -> Gathered:
        """What a forecast needs of rows of a lot, or a window, planned for it alone; they count nowhere."""
        choose, gathered = arrange_lot if is_lot else arrange, Gathered()
        arranged = choose(rows, self.job.plan, self.limits)
        for requests in cut_pieces(rows, arranged.order):
            prompts = self.measure.prompts(requests, lambda index, error: None)
            gathered.add_planned(plan(prompts, self.job.plan, arranged))
        return gathered

    def count(self, rejects: list[Outcome], num_rows: int) -> None:
        """Take rows for read, some of them for fallen out."""
        self.num_read += num_rows
        self.num_rejected += len(rejects)
        missing = [o for o in rejects if o.error_kind == MissingColumn.kind]
        self.num_missing += len(missing)
        self.num_unreadable += sum(o.error_kind == Unreadable.kind for o in rejects)
        self.first_missing = self.first_missing or (missing[0] if missing else None)

    def _note_levers(self, levers: Iterable[Lever]) -> None:
        for lever in levers:
            if lever.is_used or lever.name not in self.levers:
                self.levers[lever.name] = lever

    def check_duplicates(self) -> None:
        """Refuse the job where ids repeat among the rows read so far.

        Raises:
            DuplicateIds: names the ids and all their places.
        """
        if self.duplicates and self.job.validate_.duplicate_ids == "error":
            raise DuplicateIds(reason=self.duplicates_sentence())

    def duplicates_sentence(self) -> str:
        """Which ids repeat, and where."""
        named = [
            f"{id_.decode()[:80]} at {', '.join(self.places.place_of(key) for key in keys)}"
            for id_, keys in list(self.duplicates.items())[:MAX_NAMED_DUPLICATES]
        ]
        more = len(self.duplicates) - len(named)
        return (
            f"ids repeat: {'; '.join(named)}{f'; and {more} more' if more else ''}; make them unique,"
            " name another column with `validate.id_column`, or set"
            ' `validate.duplicate_ids = "keep"` (rows are kept apart by place)'
        )

    def check_any_asked(self) -> None:
        """Refuse the job where every row read so far that can be read lacks the column that the job asks with.

        Raises:
            ConfigError: names the column and those there are.
        """
        first = self.first_missing
        if first is None or self.num_missing + self.num_unreadable < self.num_read:
            return
        what = "name a column that is there, with `--prompt` and `{column}` in it"
        layout = self.places.cut.shards[first.key >> ORDINAL_BITS].csv
        names = layout.columns if layout is not None else []
        marks = [mark for mark in ";\t|" if len(names) == 1 and mark in names[0]]
        if marks:
            shown = marks[0].replace("\t", "\\t")
            what = f"its fields seem to be parted by `{shown}`: set `read.delimiter`, as `--set 'read.delimiter={shown}'`"
        reason = (
            f"none of the first {self.num_read:,} rows can be asked: {self.places.place_of(first.key)}:"
            f" {first.error}; {what}"
        )
        raise ConfigError(reason=reason)

    def _rows_of(self, task: TaskRows) -> Iterator[list[AnyRow | BadLine]]:
        for shard, first, stop in in_turn(task.slices):
            yield from read_rows(shard, first=first, stop=stop, wanted=self.recipe.wanted)

    def _is_window(self, rows: list[AnyRow | BadLine], num_bytes: int) -> bool:
        config = self.job.plan
        return len(rows) >= config.window_rows or num_bytes >= config.window_bytes

    def _valid(self, rows: list[AnyRow | BadLine], ends: list[tuple[int, int]]) -> Valid:
        rejects: list[Outcome] = []

        def reject(key: int, error: RowError) -> None:
            rejects.append(rejected(key, error))

        requests = self._unrepeated(each(rows, self.recipe, reject), reject)
        self.num_validated += len(rows)
        behind = max(0, self.places.cut.most_rows - self.num_validated)
        return Valid(requests, rejects, ends, len(rows), _size(rows), behind=behind)

    def _not_done(
        self, chunk: list[AnyRow | BadLine], done: set[int]
    ) -> list[AnyRow | BadLine]:
        if done and self.job.validate_.duplicate_ids == "error":
            # In their order, those to be asked too: one that is done may have failed for the id of one that is not.
            ids = {r.key: self.recipe.id_of(r) for r in chunk if not isinstance(r, BadLine)}
            self._seen.add([*ids.values()], [*ids])
        return [row for row in chunk if row.key not in done] if done else chunk

    def _unrepeated(
        self, requests: list[Request], reject: Callable[[int, RowError], None]
    ) -> list[Request]:
        """Take out rows whose id was met before; among the first rows they refuse the job, so they are noted."""
        if self.job.validate_.duplicate_ids == "keep":
            return requests
        pairs = self._seen.add([r.id for r in requests], [r.key for r in requests])
        if not pairs:
            return requests
        id_of = {r.key: r.id for r in requests}
        for key, first in pairs:
            if self.num_validated < self.job.validate_.first_rows:
                self.duplicates.setdefault(id_of[key], [first]).append(key)
            reason = f"id {id_of[key].decode()[:80]} was met before, at {self.places.place_of(first)}"
            reject(key, InvalidRow(reason=reason))
        repeated = {key for key, _ in pairs}
        return [r for r in requests if r.key not in repeated]

    def _id_at(self, key: int) -> bytes:
        shard, ordinal = unpack_key(key)
        line = line_of(self.places.cut.shards[shard], ordinal)
        return self.recipe.id_of(Row(key, line)) if line is not None else b""


def each(
    rows: Sequence[AnyRow | BadLine], recipe: Recipe, reject: Callable[[int, RowError], None]
) -> list[Request]:
    """Validate each row; the one place where a RowError of one row becomes an outcome."""
    try:
        # Most windows have no bad row; those that have are gone through again, row by row.
        requests, is_sure = recipe.all_requests(rows)  # type: ignore[arg-type]
        if is_sure:
            return requests
    except (RowError, AttributeError):
        requests = []
    good: list[Request] = []
    for row, request in zip_longest(rows, requests):
        try:
            if isinstance(row, BadLine):
                reject(row.key, Unreadable(reason=row.reason))
            elif request is None:
                good.append(validate(row, recipe))
            else:
                recipe.check_once(row)
                good.append(request)
        except RowError as error:
            reject(row.key, error)
    return good


def rejected(key: int, error: RowError) -> Outcome:
    """The outcome of a row that never reached the engine."""
    return Outcome(key, "error", error_kind=error.kind, error=error.sentence())


def _size(rows: list[AnyRow | BadLine]) -> int:
    lines = [len(row.line) for row in rows if type(row) is Row]
    if len(lines) == len(rows):
        return sum(lines)
    return sum(lines) + sum(row.columns.mean_bytes for row in rows if type(row) is TableRow)


def weight_of(rows: Valid | Window) -> float:
    """In a buffer; one without rows weighs something, too."""
    return rows.num_bytes + 1.0
