"""Job and a folder -> the job's input, mended, in that folder, and what `check` says of it.

Promises: nothing is written unless the folder is new or empty and apart from the input; after an error
nothing of the copy is left; names in the folder are those of the input wherever a walk would read them.
Knows nothing of: how a fault is mended.
Memory: a record a file, and what `check` needs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.errors import BadOutput, BadSource
from rowmill.executors.opening import understand
from rowmill.executors.placing import check_places
from rowmill.mend.copying import copy_mended
from rowmill.mend.mends import MendedFile, Mends
from rowmill.mend.repeats import Repeats
from rowmill.mend.text import SourceText
from rowmill.read.formats import JSON_SUFFIXES
from rowmill.read.listing import Found, list_files
from rowmill.rehearse import Report, check
from rowmill.storage import LocalStorage, open_storage
from rowmill.validate.recipe import id_columns

MAX_NAMED_FILES = 20

_JSON_SPACE = b" \t\r\n"
_OTHER_FIRST_BYTES = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"ARROW1")


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """What `check --fix` did, and found before and after."""

    folder: str
    files: list[MendedFile]
    total: Mends
    notes: list[str]
    """What of the input was passed over, and so not copied."""
    before_bad_rows: int | None
    """None where the input as it is cannot be run at all."""
    before_refused: str
    """Why a run over the input as it is would be refused; empty where it would not."""
    after: Report
    next: str
    """The command that runs over the copy."""

    @property
    def exit_code(self) -> int:
        """That of a `check` of the copy."""
        return self.after.exit_code

    def record(self) -> dict[str, Any]:
        """What `check` says of the copy, for programs, and what was done under `fix`."""
        record: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        after: dict[str, Any] = record.pop("after")
        return {**after, "fix": record}

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield from self._fix_lines()
        yield from self.after.lines()
        if self.before_bad_rows is not None:
            yield f"before    {_count(self.before_bad_rows, 'bad row')}"
        if self.before_refused:
            yield f"before    refused: {self.before_refused}"
        yield f"after     {_count(self.after.bad_rows, 'bad row')}"
        yield f"next      {self.next}"

    def _fix_lines(self) -> Iterator[str]:
        told = [f for f in self.files if f.mends != Mends() or f.copy != f.name]
        changed = sum(f.mends.has_changed for f in self.files)
        yield f"fix       {_count(len(self.files), 'file')} copied to `{self.folder}`, {changed:,} of them mended"
        yield from (f"note      {note}" for note in self.notes)
        for file in told[:MAX_NAMED_FILES]:
            yield f"  {file.line()}"
        if len(told) > MAX_NAMED_FILES:
            yield f"  and {len(told) - MAX_NAMED_FILES:,} more; in all: {', '.join(self.total.phrases())}"


def fix(job: Job, folder: str, *, sample: int | None = None, command: str = "") -> Fixed:
    """Write a mended copy of a job's input, and check it.

    Args:
        folder: new or empty, and apart from the input.
        sample: what `check` reads of the input and of the copy; the copy is always whole.
        command: what runs over the copy.

    Raises:
        BadOutput: the folder cannot be used.
        BadSource: the input cannot be read, is no JSON Lines, or holds no row.
        ConfigError: the job cannot be used at all.
        StorageError: the copy cannot be written.
    """
    storage = _open_folder(job, folder)
    _check_readable(job)
    found, notes = list_files(job.source, any_encoding=True)
    for file in found:
        _check_kind(file)
    before, refused = _before(job, sample)
    names = copy_names(found, hive=job.read.partitions == "hive")
    with _gone_after_errors(storage, names):
        files = [copy_mended(f, storage, name) for f, name in zip(found, names, strict=True)]
        if not any(copy.num_bytes for copy in files):
            reason = f"no row is left of {_count(len(files), 'file')}: all lines are blank or cut; nothing is written"
            raise BadSource(reason=reason)
        if job.validate_.duplicate_ids == "error":
            recipe = understand(job).recipe
            repeats = Repeats(
                storage,
                names,
                recipe=recipe,
                columns=id_columns(job),
                with_folders=job.read.partitions == "hive",
            )
            new_ids = repeats.mend()
            for copy in files:
                copy.mends.ids = new_ids.get(copy.copy, 0)
        after = check(job.model_copy(update={"source": (folder,)}), sample=sample)
    total = Mends()
    for copy in files:
        total.add(copy.mends)
    return Fixed(
        folder=folder,
        files=files,
        total=total,
        notes=notes,
        before_bad_rows=before,
        before_refused=refused,
        after=after,
        next=command,
    )


def copy_names(found: Sequence[Found], *, hive: bool) -> list[str]:
    """Names of the copies: those of the files, made fit for a walk of the folder, which passes over hidden ones.

    Args:
        hive: folders such as `region=007` above a file are columns of it, so the copy lies in them too.
    """
    fit = [_fit(file, hive=hive) for file in found]
    given = {name for file, name in zip(found, fit, strict=True) if name == file.name}
    names = []
    for file, wanted in zip(found, fit, strict=True):
        name = wanted if wanted == file.name else _free_name(wanted, given)
        given.add(name)
        names.append(name)
    return names


def _free_name(name: str, given: set[str]) -> str:
    path = PurePosixPath(name)
    numbered = (
        str(path.with_name(f"{path.stem}-{number}{path.suffix}")) for number in count(2)
    )
    return next(free for free in chain([name], numbered) if free not in given)


def _fit(file: Found, *, hive: bool) -> str:
    inner = [part for part in file.name.split("/") if part]
    outer = PurePosixPath(file.path).parts[: -len(inner)]
    columns = [part for part in outer if hive and part.find("=") > 0]
    path = PurePosixPath(*(part.lstrip("._") or "file" for part in (*columns, *inner)))
    if path.suffix.lower() in JSON_SUFFIXES:
        return str(path)
    return str(path.with_name(f"{path.name}.jsonl"))


def _open_folder(job: Job, folder: str) -> LocalStorage:
    storage = open_storage(folder)
    if not isinstance(storage, LocalStorage):
        reason = f"`--fix {folder}`: a mended copy is written to a local folder; name one"
        raise BadOutput(reason=reason)
    root = storage.root
    try:
        names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    except OSError as error:
        reason = f"`--fix {folder}` cannot be used: {error.strerror}; name another folder"
        raise BadOutput(reason=reason) from error
    if names:
        reason = f"`--fix {folder}` is not empty (`{names[0]}`); name a new folder"
        raise BadOutput(reason=reason)
    output = job.output.model_copy(update={"path": folder})
    check_places(job.model_copy(update={"output": output}), storage)
    if job.output.path and "://" not in job.output.path:
        _check_apart(folder, Path(os.path.realpath(root)), job.output.path)
    return storage


def _check_apart(folder: str, root: Path, output: str) -> None:
    target = Path(os.path.realpath(output))
    if root == target or root in target.parents or target in root.parents:
        reason = f"`--fix {folder}` and the output `{output}` lie in one another; name another folder"
        raise BadOutput(reason=reason)


def _check_readable(job: Job) -> None:
    reason = ""
    if "-" in job.source:
        reason = "`--fix` reads the input several times; name a file instead of standard input"
    elif job.read.format not in ("auto", "jsonl"):
        reason = f"`read.format` is `{job.read.format}`; `--fix` mends JSON Lines alone"
    if reason:
        raise BadSource(reason=reason)


def _check_kind(file: Found) -> None:
    """Refuse what is no JSON Lines: its faults, where it can have some, are of other kinds.

    Raises: BadSource.
    """
    suffix = Path(file.path).suffix.lower()
    text = SourceText(file)
    with contextlib.closing(text.blocks()) as blocks:
        head = next(blocks, b"").removeprefix(b"\xef\xbb\xbf").lstrip(_JSON_SPACE)
    problem = ""
    if suffix and suffix not in JSON_SUFFIXES:
        problem = f"is a `{suffix}` file"
    elif head.startswith(_OTHER_FIRST_BYTES):
        problem = "is compressed, Parquet or Arrow"
    elif suffix == ".json" and head.startswith(b"["):
        problem = "holds one JSON array"
    if problem:
        reason = f"`{file.path}`: {problem}; `--fix` mends JSON Lines alone: leave this file out, or write it as such"
        raise BadSource(reason=reason)


def _before(job: Job, sample: int | None) -> tuple[int | None, str]:
    """Bad rows of the input as it is, and why it would be refused."""
    try:
        report = check(job, sample=sample)
    except BadSource as error:
        return None, error.sentence()
    return report.bad_rows, report.refused


@contextlib.contextmanager
def _gone_after_errors(storage: LocalStorage, names: Sequence[str]) -> Iterator[None]:
    """If an error leaves it, all copies are gone again: half of them look like all."""
    every = (storage.root, *storage.root.parents)
    made = {path for path in every if not path.exists()}
    try:
        yield
    except BaseException:
        for name in names:
            path = storage.path(name)
            for written in (path, path.with_name(f"{path.name}.cut")):
                with contextlib.suppress(OSError):
                    written.unlink()
            with contextlib.suppress(OSError):
                for folder in path.parents:
                    if folder in every and folder not in made:
                        break
                    folder.rmdir()
        raise


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
