"""Input -> lots, where rows that begin alike stand too far apart for windows: the whole input, sorted on the disk.

Promises: what is sorted is decided before the run is written down; lots that are gone are made anew, the same ones,
on any machine that sees the input; nothing of it is left once results are published.
Knows nothing of: engines beyond their limits, outcomes.
Memory: one window, a sample of the texts, what lots hold before it is written.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from rowmill import rundir
from rowmill.errors import ConfigError, InputChanged, StorageError
from rowmill.events import Listener, Note
from rowmill.executors.opening import Opened, stations_of
from rowmill.executors.reasons import reasons
from rowmill.forecast.spread import NAME, Spread
from rowmill.journal import Again, read_commits
from rowmill.pipeline import TaskRows, each
from rowmill.plan import Lever
from rowmill.plan.lots import Lots, Sample
from rowmill.read import BadLine, changed, in_turn, read_rows
from rowmill.read.lots import LotFiles, read_lot
from rowmill.record import Places, cut
from rowmill.rows import AnyRow
from rowmill.storage import LocalStorage, ObjectStorage, Storage
from rowmill.storage.files import make_folder, sync_folder
from rowmill.storage.local import TEMP_PREFIX
from rowmill.storage.temporary import temporary_folder

LEAST_ROWS = 1_000_000
"""Fewer are not looked at unasked: to read them twice is not worth what it may bring."""
LOOK_ROWS = 200_000
LOOK_SHARE = 0.005
"""Where so many rows share no more than this beyond their windows, the whole input does not either."""
LOT_SHARE = 0.5
"""Of `plan.window_bytes`: a lot is a window, and some are larger than others."""


def with_lots(
    opened: Opened,
    storage: Storage,
    *,
    again: dict[int, Again] | None = None,
    listen: Listener | None = None,
) -> Opened:
    """The run as it is to be worked on: its input sorted where that pays or is asked for, its lots in place.

    Raises:
        ConfigError: the input shows that the job is to be refused.
        InputChanged, StorageError: it could not be sorted.
    """
    lots = opened.cut.lots
    if lots is not None:
        _refuse_completion(opened)
        missing = _missing(opened, storage, again)
        if missing:
            _tell(listen, f"{len(missing):,} lots of the sorted input are made anew")
            _part(opened, lots, storage, missing)
        return opened
    if not opened.is_new or opened.addition is not None or not is_worth_a_look(opened):
        return opened
    _refuse_completion(opened)
    _tell(listen, "looking through the input for rows that begin alike and stand far apart")
    lever, sample, row_bytes = _look(opened)
    if not (lever.is_used or opened.words.job.plan.sort == "input"):
        return _with_reason(opened, lever)
    most = int(LOT_SHARE * opened.words.job.plan.window_bytes / max(row_bytes, 1.0))
    task_rows = max(1, min(opened.cut.task_rows, most))
    cut_ = cut(opened.cut.shards, num_lines=opened.cut.num_lines, task_rows=task_rows)
    _tell(listen, f"sorting the input into {cut_.num_tasks:,} lots")
    lots = sample.lots(cut_.num_tasks)
    rows = _part(opened, lots, storage, range(lots.number))
    lots = msgspec.structs.replace(lots, rows=rows)
    cut_ = msgspec.structs.replace(cut_, lots=lots)
    opened = msgspec.structs.replace(opened, cut=cut_, places=Places(cut_))
    return _with_reason(opened, lever)


def lot_rows(storage: Storage, places: Places, task: int) -> Iterator[list[AnyRow | BadLine]]:
    """The rows of a task that is a lot."""
    name = rundir.lot(task)
    yield from read_lot(name, storage.read(name), places.task_lines(task))


def clear_lots(storage: Storage) -> None:
    """Remove the lots of a run that is published."""
    for name in storage.list(rundir.LOTS):
        storage.remove(name)


def is_worth_a_look(opened: Opened) -> bool:
    """Whether a run looks through the whole input before it begins."""
    job, limits = opened.words.job, opened.words.limits
    if job.plan.sort != "auto":
        return job.plan.sort == "input" and opened.cut.num_lines > 0
    can = limits.shares_prefixes and job.plan.order != "file" and job.output.order == "input"
    return can and job.kind != "embed" and opened.cut.num_lines >= LEAST_ROWS


def _refuse_completion(opened: Opened) -> None:
    if opened.words.job.output.order == "completion":
        reason = (
            'results of a sorted input come in input order alone: set `output.order = "input"`,'
            ' or for a new run `plan.sort = "window"`'
        )
        raise ConfigError(reason=reason)


def _look(opened: Opened) -> tuple[Lever, Sample, float]:
    """One pass over all texts: what is shared, a sample of the rows, bytes of a row.

    Raises: ConfigError where the first rows refuse the job.
    """
    stations, spread, sample = stations_of(opened), Spread(), Sample()
    num_bytes = 0
    can_end = opened.words.job.plan.sort == "auto"
    tasks = (
        TaskRows(task, list(opened.places.task_slices(task)), set())
        for task in range(opened.cut.num_tasks)
    )
    for valid in stations.validated(tasks):
        spread.add(valid.requests)
        sample.add(valid.requests)
        num_bytes += valid.num_bytes
        stations.count(valid.rejects, valid.num_rows)
        if can_end and spread.rows >= LOOK_ROWS:
            can_end = False
            if spread.share < LOOK_SHARE:
                break
    stations.check_duplicates()
    stations.check_any_asked()
    return spread.verdict(), sample, num_bytes / max(stations.num_read, 1)


def _missing(opened: Opened, storage: Storage, again: dict[int, Again] | None) -> list[int]:
    """Lots that will be read and are not there."""
    assert opened.cut.lots is not None
    done = read_commits(storage).keys() if again is None else ()
    todo = range(opened.cut.num_tasks) if again is None else again
    there = set(storage.list(rundir.LOTS))
    return [
        task
        for task in todo
        if opened.places.is_lot(task) and task not in done and rundir.lot(task) not in there
    ]


def _part(opened: Opened, lots: Lots, storage: Storage, tasks: Collection[int]) -> list[int]:
    """Put all rows into lots, and keep those of `tasks`. Returns: rows of each lot.

    Raises: InputChanged, StorageError.
    """
    folder = _folder(storage)
    draft = f"{TEMP_PREFIX}{os.getpid()}-{secrets.token_hex(4)}-"
    files = LotFiles(folder, draft, tasks)
    recipe = opened.words.recipe
    counts = [0] * lots.number
    try:
        for shard, first, stop in in_turn(opened.places.slices(0, opened.cut.first_lines)):
            for rows in read_rows(shard, first=first, stop=stop, wanted=recipe.wanted):
                numbers = _lots_of(rows, opened, lots)
                for number in numbers:
                    counts[number] += 1
                files.add(rows, numbers)
        moved = changed(opened.record.files)
        if moved:
            raise InputChanged(path=next(iter(moved)))
        _keep(files.finish(), storage, folder)
    finally:
        files.abandon()
        if not isinstance(storage, LocalStorage):
            shutil.rmtree(folder, ignore_errors=True)
    return counts


def _lots_of(rows: list[AnyRow | BadLine], opened: Opened, lots: Lots) -> list[int]:
    """The lot of each row; rows that cannot be asked are spread over all, or one would be nothing else."""
    requests = each(rows, opened.words.recipe, lambda key, error: None)
    marks = lots.marks(requests)
    lot_of = {mark[1]: lots.lot_of(mark) for mark in marks}
    return [lot_of.get(row.key, row.key % lots.number) for row in rows]


def _folder(storage: Storage) -> Path:
    """Where lots are made: at the output, or on the temporary disk before they are sent there."""
    if not isinstance(storage, LocalStorage):
        return temporary_folder("lots")
    folder = storage.root / rundir.LOTS.rstrip("/")
    try:
        make_folder(folder)
    except OSError as error:
        raise StorageError(path=str(folder), reason=f"{error.strerror or error}") from error
    return folder


def _keep(paths: dict[int, Path], storage: Storage, folder: Path) -> None:
    """Give finished lots their names."""
    try:
        for task, path in paths.items():
            if isinstance(storage, ObjectStorage):
                with path.open("rb") as file:
                    storage.upload(rundir.lot(task), file, path.stat().st_size)
                path.unlink()
            else:
                place = storage.path(rundir.lot(task))
                assert place is not None
                path.replace(place)
        sync_folder(folder)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        raise StorageError(path=rundir.LOTS, reason=reason) from error


def _with_reason(opened: Opened, lever: Lever) -> Opened:
    """Say why, or why not, where the other settings' reasons are said."""
    told = reasons(opened.words.job, opened.words.limits, opened.cut)
    record = msgspec.structs.replace(opened.record, reasons=told | {NAME: lever.reason})
    return msgspec.structs.replace(opened, record=record)


def _tell(listen: Listener | None, text: str) -> None:
    if listen is not None:
        listen(Note(text=text))
