"""Run -> batch files: lines, or a table where the name says so.

Promises: in input order; a file appears whole under its name, or stays what it was.
Knows nothing of: how rows were asked.
Memory: the outcomes of one task.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rowmill.batch.bodies import Served
from rowmill.batch.lines import BatchLine, LineIds, batch_line, encode
from rowmill.batch.target import Target, read_target
from rowmill.errors import BadOutput, StorageError
from rowmill.outcomes import decode
from rowmill.read import read_spans
from rowmill.report.run import View, open_view
from rowmill.rows import pack_key
from rowmill.storage import place_of
from rowmill.storage.addresses import is_remote, parse_address
from rowmill.storage.drafts import Draft, open_draft
from rowmill.write.form import Form, form_of_name
from rowmill.write.packed import open_packer

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.write.sinks import Sink

_AT_ONCE = 2048


class Written(msgspec.Struct, frozen=True):
    """What the files hold."""

    answered: int
    failed: int
    files: list[str]


def check_target(target: Target, sources: Sequence[str]) -> None:
    """See, before anything is asked, that the files can be written and are none of the input.

    Raises:
        BadOutput: names the file and the reason.
    """
    files = [target.file, *([target.errors] if target.errors else [])]
    for file in files:
        reason = _clash(file, sources) or _obstacle(file)
        if files.count(file) > 1:
            reason = "is to hold answers and errors both"
        if reason:
            raise BadOutput(reason=f"output `{file}` {reason}; name another file")


def _clash(file: str, sources: Sequence[str]) -> str:
    """What a file has to do with the input; empty for nothing."""
    if is_remote(file):
        url = parse_address(file).url
        inputs_there = [parse_address(source).url for source in sources if is_remote(source)]
        return "is the input" if url in inputs_there else ""
    path = Path(file)
    inputs = [Path(source) for source in sources if Path(source).exists()]
    if path.exists() and any(path.samefile(source) for source in inputs):
        return "is the input"
    if any(source.is_dir() and _lies_in(path, source) for source in inputs):
        return "lies in a folder of the input"
    return ""


def _obstacle(file: str) -> str:
    """Why a file cannot be written; empty where it can."""
    if _form_of(file).format not in ("jsonl", "parquet"):
        return "says by its name that it is neither lines nor Parquet"
    if is_remote(file):
        return ""  # whether a store lets us is seen when the run is made beside it
    path = Path(file)
    folder = path.absolute().parent
    if path.is_dir():
        return "is a folder"
    if not folder.is_dir():
        return "lies in a folder that is not there"
    if not os.access(folder, os.W_OK):
        return "lies in a folder that nothing can be written to"
    return ""


def _lies_in(path: Path, folder: Path) -> bool:
    return folder.resolve() in path.absolute().resolve().parents


def _form_of(file: str) -> Form:
    return form_of_name(file.rpartition("/")[2]) or Form()


def write_batch(folder: str, target: Target) -> Written:
    """Write the files of a run that is whole.

    Raises:
        ConfigError: there is no run.
        BadOutput, StorageError: a file cannot be written.
    """
    view = open_view(folder)
    good = _File(target.file)
    bad = _File(target.errors) if target.errors else None
    num_bad = 0
    try:
        for line in _lines(view, target):
            num_bad += not line.is_answered
            (good if line.is_answered or bad is None else bad).add(line)
        good.finish()
        if bad is not None and (num_bad or bad.was_there):
            bad.finish()
    finally:
        good.abandon()
        if bad is not None:
            bad.abandon()
    files = [target.file, *([target.errors] if bad is not None and num_bad else [])]
    return Written(view.counts().done - num_bad, num_bad, files)


def write_again(folder: str) -> Written | None:
    """Write the files of a run once more, after a retry; None where it is no batch, or is not whole."""
    view = open_view(folder)
    target = read_target(view.storage)
    if target is None or len(view.commits) < view.cut.num_tasks:
        return None
    return write_batch(folder, target)


def _lines(view: View, target: Target) -> Iterator[BatchLine]:
    began = int(datetime.fromisoformat(view.record.started).timestamp())
    served = Served(target.dialect, target.model, began)
    ids = LineIds(view.record.identity.get("validate.id_column") or "")
    lines_of = view.range_lines()
    for task in range(view.cut.num_tasks):
        by_key = {o.key: o for part in lines_of(task) for o in map(decode, part)}
        for shard, first, stop in view.places.task_slices(task):
            for spans in read_spans(shard, first=first, stop=stop):
                for ordinal, source in spans:
                    outcome = by_key.get(pack_key(shard.index, ordinal))
                    if outcome is not None:
                        custom_id, token = ids.of(source), view.record.token
                        yield batch_line(source, custom_id, outcome, served, token)


class _File:
    """A batch file in the making."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._storage, self._name = place_of(file)
        self._form = _form_of(file)
        self._lines: list[BatchLine] = []
        self._packer = open_packer(self._form.compression) if self._form.is_lines else None
        self._draft: Draft | None = None
        self._sink: Sink | None = None
        self._is_over = False

    @property
    def was_there(self) -> bool:
        """Whether an earlier one stands under the name."""
        return self._storage.size(self._name) is not None

    def add(self, line: BatchLine) -> None:
        self._lines.append(line)
        if len(self._lines) >= _AT_ONCE:
            self._flush()

    def finish(self) -> None:
        self._flush()
        draft = self._opened()
        if self._packer is not None:
            draft.write(self._packer.finish())
        elif self._sink is not None:
            self._sink.finish()
        draft.finish()
        self._is_over = True

    def abandon(self) -> None:
        """Leave no trace, unless it is finished."""
        if self._is_over or self._draft is None:
            return
        if self._sink is not None:
            self._sink.abandon()
        self._draft.abandon()

    def _opened(self) -> Draft:
        if self._draft is None:
            try:
                self._draft = open_draft(self._storage, self._name)
            except OSError as error:
                raise StorageError(path=self._file, reason=str(error.strerror)) from error
        return self._draft

    def _flush(self) -> None:
        draft, lines = self._opened(), self._lines
        self._lines = []
        if self._packer is not None:
            draft.write(self._packer.pack(b"".join([encode(line) + b"\n" for line in lines])))
            return
        from rowmill.write.sinks import open_sink

        batch = _table(lines)
        if self._sink is None:
            self._sink = open_sink(self._form, batch.schema, draft.write)
        if lines:
            self._sink.add(batch)


def _table(lines: list[BatchLine]) -> pa.RecordBatch:
    """Lines as columns; ids, bodies and errors that have no fixed shape as JSON text."""
    import pyarrow as pa

    response = pa.struct(
        [
            pa.field("status_code", pa.int64()),
            pa.field("request_id", pa.string()),
            pa.field("body", pa.string()),
        ]
    )
    told = [
        line.response
        and {
            "status_code": line.response.status_code,
            "request_id": line.response.request_id,
            "body": _text(line.response.body),
        }
        for line in lines
    ]
    return pa.record_batch(
        {
            "id": pa.array([line.id for line in lines], pa.string()),
            "custom_id": pa.array([_plain(line.custom_id) for line in lines], pa.string()),
            "response": pa.array(told, response),
            "error": pa.array([_text(line.error) for line in lines], pa.string()),
        }
    )


def _text(value: msgspec.Raw) -> str | None:
    text = bytes(value)
    return None if text == b"null" else text.decode()


def _plain(value: msgspec.Raw) -> str | None:
    """An id as text: a string as it is, others in JSON."""
    found = msgspec.json.decode(value)
    return found if isinstance(found, str) else _text(value)
