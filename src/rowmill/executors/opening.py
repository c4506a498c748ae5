"""Job -> an opened run: everything that can be refused is refused here, before an engine is started.

Promises: a refusal leaves nothing behind at the output; an existing run is gone on with only by a job of
the same identity over the same input.
Knows nothing of: engines beyond what they declare, threads.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rowmill import engines
from rowmill.config import Job
from rowmill.errors import BadJob, ConfigError, InputChanged, RunMismatch
from rowmill.events import MAX_NAMED_FILES, Forecast, Listener, Note, Planned
from rowmill.executors.identity import INNER_ENGINE_FIELDS
from rowmill.executors.profiles import profiled
from rowmill.executors.reasons import label_reason, reasons, versions
from rowmill.executors.spools import keep_spools, spool_folder
from rowmill.executors.wording import (
    Words,
    as_begun,
    compiled,
    identity_of,
    with_field_order,
)
from rowmill.pipeline import Known, Stations
from rowmill.read import Source, open_recorded, open_source, read_spans
from rowmill.read.source import changed
from rowmill.read.unpack import STDIN
from rowmill.record import (
    Addition,
    Cut,
    Places,
    Record,
    check_same,
    cut,
    note_moves,
    read_run,
    write_addition,
    write_run,
)
from rowmill.storage import Storage
from rowmill.tokens import open_tokenizer

NO_RUN = "`--append`: there was no run to append to; this one begins now"


def understand(job: Job) -> Words:
    """Compile a job: engine settings checked, tokenizer opened, templates compiled.

    Raises:
        ConfigError: with what is wrong.
    """
    engines.check_kind(job.engine, job.kind)
    mistakes = engines.check_options(job.engine)
    if mistakes:
        raise BadJob(where="[engine]", mistakes=mistakes)
    job = profiled(job.model_copy(update={"engine": engines.resolve(job.engine)}))
    return compiled(job, engines.declare(job.engine), open_tokenizer(job.engine))


class Opened(msgspec.Struct, frozen=True):
    """A run to work on."""

    words: Words
    record: Record
    cut: Cut
    places: Places
    is_new: bool
    """Nothing of it is written yet, or nothing of `addition`; `start_run` does that once the first rows are checked."""
    notes: list[str]
    addition: Addition | None = None
    """Files that join a run which is there."""
    known: Known | None = None
    """Where token ids of its rows may lie already."""

    @property
    def new_tasks(self) -> range:
        """Tasks that no earlier start knew."""
        if not self.is_new:
            return range(0)
        old = self.cut.additions[-1][1] // self.cut.task_rows if self.addition else 0
        return range(old, self.cut.num_tasks)


def open_run(
    job: Job,
    storage: Storage,
    *,
    token: str,
    is_retry: bool = False,
    append: bool = False,
    listen: Listener | None = None,
) -> Opened:
    """Read the input's shape and compare with the run that lies at the output, if one does.

    Args:
        is_retry: settings may differ from the run's; the input may not, and is not listed again where the job
            names it as the run does.
        append: files that the run does not know join it; those it knows need not be named again.
        listen: told how far the reading of many files is.

    Raises:
        BadSource: the input cannot be read.
        RunMismatch: the output holds a run of another identity, or over another input.
    """
    if append and job.run.limit is not None:
        reason = "`run.limit` and `--append` exclude each other: a run of the first rows has no end to append to"
        raise ConfigError(reason=reason)
    found = read_run(storage)
    words = understand(job)
    if found is None:
        source = open_source(
            job.source, spool=spool_folder(storage), read=job.read, tell=_teller(listen)
        )
        opened = new_run(words, source, token)
        return (
            msgspec.structs.replace(opened, notes=[*opened.notes, NO_RUN]) if append else opened
        )
    record, cut_ = found
    words = as_begun(words, record.identity)
    # What has no rows need not be named either.
    joined = cut_.joined_names() | {file.name for file in record.files if not file.num_lines}
    # Of a retry, the run's own files are all that is asked for, wherever they were found last.
    paths = None if is_retry and _source(job) == record.job.get("source") else job.source
    differing = changed(
        record.files, paths=paths, read=job.read, joined=joined, may_join=append
    )
    if differing:
        raise _other_input(job, differing, is_named=paths is not None)
    if not is_retry:
        check_same(record.identity, identity_of(words), job.output.path)
    spool = spool_folder(storage)
    source = open_recorded(
        record.files,
        cut_.shards,
        paths=paths,
        spool=spool,
        read=job.read,
        joined=joined,
        may_join=append,
    )
    note_moves(storage, record.files, source.files)
    cut_ = msgspec.structs.replace(cut_, shards=source.shards)
    record = msgspec.structs.replace(record, files=source.files)
    if append:
        return _with_new_files(words, record, cut_, spool, listen)
    return Opened(words, record, cut_, Places(cut_), is_new=False, notes=[])


def _teller(listen: Listener | None) -> Callable[[str], None] | None:
    return None if listen is None else lambda text: listen(Note(text=text))


def _with_new_files(
    words: Words, record: Record, cut_: Cut, spool: Path, listen: Listener | None
) -> Opened:
    """The run, joined by the files of the job that it does not know."""
    job = words.job
    source = open_source(
        job.source,
        spool=spool,
        read=job.read,
        known=record.files,
        first_index=len(cut_.shards),
        tell=_teller(listen),
    )
    notes = [*source.notes, _joining_note(source, job, record)]
    if not source.num_lines:
        return Opened(words, record, cut_, Places(cut_), is_new=False, notes=notes)
    addition = Addition(source.files, source.shards)
    record = msgspec.structs.replace(record, files=[*record.files, *source.files])
    cut_ = cut_.with_addition(addition)
    places = Places(cut_)
    return Opened(words, record, cut_, places, is_new=True, notes=notes, addition=addition)


def _joining_note(source: Source, job: Job, record: Record) -> str:
    if source.num_lines:
        num = len(source.files)
        return f"{num:,} file{'s' * (num > 1)} with {source.num_lines:,} lines join the run"
    if STDIN in job.source and any(file.path == STDIN for file in record.files):
        return "no file joins the run: what standard input gave once is part of it already, and it was not read again"
    return "no file joins the run: all rows that are named are part of it already"


def _other_input(job: Job, differing: dict[str, str], *, is_named: bool) -> RunMismatch:
    each = ", ".join(f"`{name}` ({what})" for name, what in differing.items())
    found = set(differing.values())
    way_on = "put the old files back, or take another `-o`"
    if not is_named:
        way_on = "put the old files back, or where they were moved, give the command of the run with their new place"
    elif found == {"added"}:
        way_on = "`rowmill run --append` lets them join it, or take another `-o`"
    elif found == {"added", "not named"}:
        way_on = "name all files of the run, with `--append` let others join it, or take another `-o`"
    elif found == {"not named"}:
        way_on = "name all files of the run, or take another `-o`"
    elif "not named" in found:
        way_on = "put the old files back and name all of them, or take another `-o`"
    reason = f"`{job.output.path}` holds a run over another input: {each}; {way_on}"
    return RunMismatch(reason=reason, keys=["source"])


def new_run(words: Words, source: Source, token: str) -> Opened:
    """A run that begins now: tasks are cut."""
    words, told = with_field_order(words, source)
    job = words.job
    num_lines = source.num_lines
    if job.run.limit is not None:
        num_lines = lines_of_rows(source, job.run.limit)
    cut_ = cut(source.shards, num_lines=num_lines, task_rows=job.run.task_rows)
    record = Record(
        token=token,
        identity=identity_of(words),
        job=as_recorded(job),
        reasons=reasons(job, words.limits, cut_) | label_reason(job, words.tokenizer) | told,
        versions=versions(),
        files=source.files,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        prefix=job.output.prefix,
    )
    return Opened(words, record, cut_, Places(cut_), is_new=True, notes=source.notes)


def as_recorded(job: Job) -> dict[str, Any]:
    """The job as it was given, files named so that they are found from any folder."""
    tree = job.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    engine = tree.get("engine", {})
    for name in INNER_ENGINE_FIELDS:
        engine.pop(name, None)
    if tree.get("media", {}).get("folder"):
        tree["media"]["folder"] = str(Path(job.media.folder).expanduser().absolute())
    for name in ("model", "tokenizer", "chat_template"):
        if engine.get(name) and Path(engine[name]).exists():
            engine[name] = str(Path(engine[name]).absolute())
    tree["source"] = _source(job)
    return tree


def _source(job: Job) -> list[str]:
    """The input as a job names it, so that it is found from any folder."""
    return [s if s == "-" or "://" in s else str(Path(s).absolute()) for s in job.source]


def start_run(opened: Opened, storage: Storage) -> None:
    """Write a new run, or what joins it, down: from here on it is resumed, not begun.

    Raises:
        RunMismatch: others joined it at the same moment.
        StorageError: it cannot be written.
    """
    keep_spools(storage, opened.addition.shards if opened.addition else opened.cut.shards)
    if opened.addition is None:
        write_run(storage, opened.record, opened.cut)
    else:
        write_addition(storage, opened.cut, opened.addition)


def lines_of_rows(source: Source, rows: int) -> int:
    """How many lines from the start hold the first `rows` rows."""
    lines = 0
    for shard in source.shards:
        for spans in read_spans(shard):
            if len(spans) >= rows:
                return lines + spans[rows - 1][0] + 1
            rows -= len(spans)
        lines += shard.num_lines
    return lines


def new_token() -> str:
    """A token for a run that nobody can guess."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def stations_of(opened: Opened) -> Stations:
    """The stations of an opened run, fresh: they remember the ids they saw."""
    words = opened.words
    return Stations(
        words.job,
        limits=words.limits,
        recipe=words.recipe,
        measure=words.measure,
        places=opened.places,
        known=opened.known,
    )


def check_input(opened: Opened, tasks: list[int]) -> None:
    """See that the files of tasks about to be committed are what they were when the run was cut.

    Raises:
        InputChanged: what was read since may belong to other rows.
    """
    slices = opened.places.task_slices
    names = {shard.name for task in tasks for shard, _, _ in slices(task)}
    moved = changed([file for file in opened.record.files if file.name in names])
    if moved:
        raise InputChanged(path=next(iter(moved)))


def planned_event(
    opened: Opened,
    stations: Stations,
    forecast: Sequence[str] = (),
    said: Forecast | None = None,
    *,
    resumed: int,
) -> Planned:
    """What is known before the engine starts, for people."""
    return Planned(
        engine=opened.words.limits.about or opened.words.job.engine.name,
        files=len(opened.record.files),
        names=[file.name for file in opened.record.files[:MAX_NAMED_FILES]],
        lines_in=opened.cut.num_lines,
        resumed=resumed,
        checked=stations.num_read,
        bad=stations.num_rejected,
        prompt_tokens=stations.num_tokens,
        levers=[(lever.name, lever.reason) for lever in stations.levers.values()],
        forecast=list(forecast),
        said=said,
        reasons=opened.record.reasons,
        notes=[*opened.notes, *opened.words.measure.notes()],
    )
