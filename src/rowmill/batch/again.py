"""Input + batch files without their run -> the lines to ask again; their answers -> the files, whole.

Promises: lines that hold an answer are kept byte for byte; a line that failed is replaced where it stands, one that is
missing is added at the end; a file is replaced in one step, or not at all.
Knows nothing of: how rows are asked.
Memory: an entry an id of the input, and one a line that is asked again.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import xxhash

from rowmill import rundir
from rowmill.batch.lines import LineIds
from rowmill.batch.reading import id_key, read_lines
from rowmill.batch.target import Target
from rowmill.errors import BadOutput, ConfigError
from rowmill.read import Source, open_source, read_spans
from rowmill.report.run import run_of
from rowmill.storage import place_of
from rowmill.storage.addresses import is_remote
from rowmill.storage.drafts import open_draft
from rowmill.write.form import form_of_name
from rowmill.write.packed import open_packer


class Standing(NamedTuple):
    """What batch files hold."""

    fates: dict[Any, list[bool]]
    """Of each id, in the order of the files: whether a line holds an answer."""
    unreadable: int
    """Lines that are none of a batch file, such as a last one that was cut off."""
    has_strays: bool
    """Whether the file of errors still tells of lines that were answered since."""


class Again(NamedTuple):
    """What is asked again."""

    folder: Path
    lines: str
    """File with the lines; its name is made of what is in it, so that the same command goes on with the same."""
    rows: int
    kept: int
    """Rows of the input that are answered."""
    standing: Standing

    @property
    def is_needed(self) -> bool:
        """Whether the files change."""
        return bool(self.rows or self.standing.unreadable or self.standing.has_strays)

    @property
    def target(self) -> str:
        """Where their answers are written, before they are put in their places."""
        return str(self.folder / f"{Path(self.lines).stem}.answers.jsonl")


def check_alone(target: Target) -> None:
    """See that the files are there, without a run, and that they can be put together.

    Raises:
        BadOutput: names the file and what to do.
    """
    file = target.file
    form = None if is_remote(file) else form_of_name(Path(file).name)
    reason = ""
    if form is None or form.format != "jsonl":
        reason = "is not a file of lines on this machine; `--retry` takes no other"
    elif run_of(file) != file:
        reason = f"has its run beside it; `rowmill retry {file}` asks what failed"
    elif not Path(file).is_file():
        reason = "is not there, so nothing is to be asked again; leave `--retry` out"
    if reason:
        raise BadOutput(reason=f"output `{file}` {reason}")


def select(sources: Sequence[str], target: Target, id_column: str = "") -> Again:
    """Write the lines of the input that the batch files hold no answer to.

    Args:
        sources: the input.
        target: the files.
        id_column: the job's `validate.id_column`.

    Raises:
        BadSource: the input, or a batch file, cannot be read.
        ConfigError: the files do not belong together.
    """
    folder = Path(f"{target.file}{rundir.AGAIN}")
    spool = folder / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    try:
        return _selected(open_source(sources, spool=spool), target, folder, LineIds(id_column))
    finally:
        shutil.rmtree(spool)
        with suppress(OSError):  # what an earlier start left is gone on with
            folder.rmdir()


def _selected(source: Source, target: Target, folder: Path, ids: LineIds) -> Again:
    standing = _standing(target)
    counts = Counter(key for key, _ in _input_lines(source, ids))
    if counts and standing.fates and not counts.keys() & standing.fates.keys():
        reason = (
            f"no id of `{target.file}` is one of the input; name the input that it was made of"
        )
        raise ConfigError(reason=reason)
    wanted = {key: _wanted(key, n, standing, target) for key, n in counts.items()}
    seen: Counter[Any] = Counter()
    digest, rows = xxhash.xxh3_64(), 0
    draft = folder / "lines.part"
    with draft.open("wb") as out:
        for key, line in _input_lines(source, ids):
            if wanted[key][seen[key]] and line:
                out.write(line + b"\n")
                digest.update(line + b"\n")
                rows += 1
            seen[key] += 1
    lines = folder / f"{digest.hexdigest()}.jsonl"
    if lines.exists():
        # A run goes on over a file that was not touched.
        draft.unlink()
    else:
        draft.replace(lines)
    return Again(folder, str(lines), rows, sum(seen.values()) - rows, standing)


def _standing(target: Target) -> Standing:
    fates: defaultdict[Any, list[bool]] = defaultdict(list)
    unreadable, has_strays = 0, False
    for line in read_lines(target.file):
        if line.is_readable:
            fates[line.key].append(line.is_answered)
        unreadable += not line.is_readable
    for line in read_lines(target.errors) if _is_there(target.errors) else ():
        is_stray = not line.is_readable or any(fates[line.key])
        has_strays |= is_stray
        if not is_stray:
            fates[line.key].append(line.is_answered)
    return Standing(dict(fates), unreadable, has_strays)


def _is_there(file: str) -> bool:
    return bool(file) and Path(file).is_file()


def _input_lines(source: Source, ids: LineIds) -> Iterator[tuple[Any, bytes]]:
    """(id, line) of each row, in input order; the id is that of what was made of it."""
    for shard in source.shards:
        for spans in read_spans(shard):
            for _, line in spans:
                yield id_key(ids.of(line)), line.strip()


def _wanted(key: Any, rows: int, standing: Standing, target: Target) -> list[bool]:
    """Of each of the rows that have this id: whether it is asked again.

    Raises:
        ConfigError: some of them are answered, and nothing says which.
    """
    fates = standing.fates.get(key, [])
    answered = sum(fates)
    if not answered:
        return [True] * rows
    if answered >= rows:
        return [False] * rows
    if len(fates) == rows and not target.errors:
        # Files of one kind of line are in input order.
        return [not fate for fate in fates]
    name = "no id" if key is None else f"the id `{str(key)[:80]}`"
    reason = (
        f"{rows:,} rows of the input have {name} and {answered:,} of them {'is' if answered == 1 else 'are'}"
        f" answered in `{target.file}`, which does not say which; give each an id of its own, or run without `--retry`"
    )
    raise ConfigError(reason=reason)


def put_back(again: Again, target: Target, made: Sequence[str]) -> None:
    """Put what was asked again into the batch files.

    Args:
        again: what was asked.
        target: the files.
        made: files with the new answers, and the new errors.

    Raises:
        StorageError: a file cannot be written.
    """
    with _Made(made, is_apart=bool(target.errors)) as new:
        # Answers first: where we end in between, what the errors tell too much is seen next time.
        _rewrite(target.file, new, again.standing, kind=True if target.errors else None)
        if target.errors:
            _rewrite(target.errors, new, again.standing, kind=False)


def num_failed(target: Target) -> int:
    """Lines of the files that hold no answer."""
    files = filter(_is_there, (target.file, target.errors))
    return sum(not line.is_answered for file in files for line in read_lines(file))


def drop(again: Again) -> None:
    """Remove what was only there to ask again."""
    shutil.rmtree(again.folder)


class _Made:
    """New lines by id, each handed out once; only where they lie is kept."""

    def __init__(self, files: Sequence[str], *, is_apart: bool) -> None:
        self.keys: set[Any] = set()
        self._open = ExitStack()
        self._places: defaultdict[Any, deque[tuple[BinaryIO, int]]] = defaultdict(deque)
        """By id and kind: whether it is an answer, where those stand in a file of their own."""
        for name in filter(_is_there, files):
            file = self._open.enter_context(Path(name).open("rb"))  # noqa: SIM115 - closed with the stack
            at = 0
            for line in read_lines(name):
                kind = line.is_answered if is_apart else None
                self.keys.add(line.key)
                self._places[line.key, kind].append((file, at))
                at += len(line.raw)

    def __enter__(self) -> _Made:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def next_of(self, key: Any, kind: bool | None) -> bytes | None:
        """The next line of an id; None where there is none more."""
        places = self._places.get((key, kind))
        if not places:
            return None
        file, at = places.popleft()
        file.seek(at)
        return file.readline()

    def rest(self, kind: bool | None) -> Iterator[bytes]:
        """Lines that replace none."""
        for key, its_kind in list(self._places):
            while its_kind == kind and (line := self.next_of(key, kind)) is not None:
                yield line


def _rewrite(file: str, new: _Made, standing: Standing, *, kind: bool | None) -> None:
    """Write a batch file anew.

    Args:
        file: its name.
        new: what takes the place of lines that failed.
        standing: of before.
        kind: of the lines in this file: True answers, False errors, None both.
    """
    with _rewritten(file) as write:
        for line in read_lines(file) if _is_there(file) else ():
            found = None if line.is_answered else new.next_of(line.key, kind)
            # Its new line goes to the other file, or its answer has long been there.
            is_over = kind is not None and (
                line.key in new.keys or any(standing.fates.get(line.key, ()))
            )
            if line.is_answered or (line.is_readable and not found and not is_over):
                write(line.raw)
            elif found:
                write(found)
        for added in new.rest(kind):
            write(added)


@contextmanager
def _rewritten(file: str) -> Iterator[Callable[[bytes], None]]:
    """Takes lines; what they make is the file once all went well."""
    form = form_of_name(Path(file).name)
    packer = open_packer(form.compression if form else "none")
    draft = open_draft(*place_of(file))
    try:
        yield lambda line: draft.write(packer.pack(line))
        draft.write(packer.finish())
        draft.finish()
    except BaseException:
        draft.abandon()
        raise
