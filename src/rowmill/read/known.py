"""Files as they are listed + files of a run -> the same files by the run's names.

Promises: a file is known by its path; else by its name and content, wherever it lies; else, where the known one is
gone from its place, by its content alone; what is left over is one that changed, where the known one of its name is
gone, else a new one. A known file is found once, and a new one never gets its name.
Knows nothing of: rows, shards.
Memory: a record a file. Time: a file is read where its size is that of one that it may be, and once.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from rowmill.read.listing import Found, list_files
from rowmill.read.scan import SourceFile, digest_of
from rowmill.read.unpack import STDIN, unreadable
from rowmill.read_config import ReadConfig
from rowmill.storage.addresses import is_remote
from rowmill.storage.remote import look_all


class Listed(msgspec.Struct, frozen=True):
    """What a job names, beside a run's files."""

    known: list[Found]
    """Files that go by the name of one of the run's, be they changed or not."""
    new: list[Found]
    notes: list[str]


def match_files(
    recorded: Sequence[SourceFile], paths: Sequence[str], read: ReadConfig | None = None
) -> Listed:
    """List the files of `paths`, known ones by the names that they have in the run.

    Raises: BadSource where paths cannot be read.
    """
    listed, notes = list_files(paths, read)
    search = _Search(recorded, listed)
    search.by_path()
    search.by_name_and_content()
    if search.others and search.missing:
        gone = search.gone()
        search.by_content(gone)
        search.by_name(gone)
    return Listed(
        search.known, _renamed(search.others, {file.name for file in recorded}), notes
    )


class _Search:
    """A run's files among those that are listed."""

    def __init__(self, recorded: Sequence[SourceFile], listed: Sequence[Found]) -> None:
        self.missing = {file.name: file for file in recorded}
        """Files of the run that are not found yet, by name."""
        self.others = list(listed)
        """Listed files that are not known yet."""
        self.known: list[Found] = []
        self._digest_by_path: dict[str, str] = {}

    def by_path(self) -> None:
        names = {file.path: file.name for file in self.missing.values()}
        self._take({f.path: names[f.path] for f in self.others if f.path in names})

    def by_name_and_content(self) -> None:
        alike = (f for f in self.others if f.name in self.missing)
        self._take({f.path: f.name for f in alike if self._is_as(f, self.missing[f.name])})

    def gone(self) -> list[SourceFile]:
        """Files that are not found yet, and are no longer where they were."""
        there = {file.name for file in files_at_their_places(list(self.missing.values()))}
        return [file for file in self.missing.values() if file.name not in there]

    def by_content(self, gone: Sequence[SourceFile]) -> None:
        """Only what is gone from its place can have moved: a copy beside it is a file of its own."""
        by_size: dict[int, list[SourceFile]] = {}
        for file in gone:
            by_size.setdefault(file.size, []).append(file)
        names: dict[str, str] = {}
        for found in self.others:
            left = by_size.get(found.size, [])
            like = next((file for file in left if self._is_as(found, file)), None)
            if like is not None:
                left.remove(like)
                names[found.path] = like.name
        self._take(names)

    def by_name(self, gone: Sequence[SourceFile]) -> None:
        left = {file.name for file in gone} & self.missing.keys()
        self._take({f.path: f.name for f in self.others if f.name in left})

    def _is_as(self, found: Found, before: SourceFile) -> bool:
        if STDIN in (found.path, before.path) or found.size != before.size:
            return False
        if found.path not in self._digest_by_path:
            self._digest_by_path[found.path] = digest_of(found)
        return self._digest_by_path[found.path] == before.digest

    def _take(self, names: dict[str, str]) -> None:
        """Know files, by path, by the names they have in the run."""
        for found in self.others:
            if found.path in names:
                digest = self._digest_by_path.get(found.path, "")
                name = names[found.path]
                self.known.append(msgspec.structs.replace(found, name=name, digest=digest))
                del self.missing[name]
        self.others = [found for found in self.others if found.path not in names]


def digest_now(file: Found, before: SourceFile) -> str:
    """Digest of a file as it is; empty where its size alone tells that it is another than `before`.

    One with the path, size and time that it had is taken as unchanged, and is not read.
    """
    if before.path == file.path == STDIN:
        return before.digest
    if before.size != file.size or STDIN in (before.path, file.path):
        return ""
    if file.digest or file.version:
        return file.digest or digest_of(file)
    if (before.path, before.mtime_ns) == (file.path, file.mtime_ns):
        return before.digest
    return digest_of(file)


def files_at_their_places(recorded: Sequence[SourceFile]) -> list[Found]:
    """The run's files that are there, where they were when they were counted.

    Raises: BadSource where one cannot be looked at.
    """
    found = _remote_at_their_places([file for file in recorded if is_remote(file.path)])
    for file in recorded:
        if file.path == STDIN:
            found.append(Found(STDIN, file.name, 0, 0))
        if file.path == STDIN or is_remote(file.path):
            continue
        try:
            state = Path(file.path).stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise unreadable(file.path, error) from error
        if not stat.S_ISDIR(state.st_mode):
            found.append(Found(file.path, file.name, state.st_size, state.st_mtime_ns))
    return found


def _remote_at_their_places(recorded: Sequence[SourceFile]) -> list[Found]:
    try:
        states = look_all([file.path for file in recorded])
    except OSError as error:
        raise unreadable(str(error.filename), error) from error
    return [
        Found(file.path, file.name, now.size, now.modified_ns, version=now.version)
        for file, now in zip(recorded, states, strict=True)
        if now is not None
    ]


def _renamed(others: Sequence[Found], taken: Collection[str]) -> list[Found]:
    """Names that known files have grow by the folders above them until they differ."""
    names = {*taken, *(found.name for found in others if found.name not in taken)}
    renamed = []
    for found in others:
        name, parts = found.name, Path(found.path).parts
        length = name.count("/") + 1
        while name in taken or (name != found.name and name in names):
            length += 1
            if length > len(parts):
                name = f"/{name}"
                continue
            name = "/".join(parts[-length:]).replace("//", "/")
        names.add(name)
        renamed.append(msgspec.structs.replace(found, name=name))
    return renamed
