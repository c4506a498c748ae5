"""Files as they are listed + files of a run -> the same files by the run's names.

Promises: a file is known by its path, wherever else its name stands; else by its name and content; else, where the
known one is gone from its place, by its content alone. A new file never gets the name of a known one.
Knows nothing of: rows, shards.
Memory: a record a file.
"""

from __future__ import annotations

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
    recorded: Sequence[SourceFile],
    paths: Sequence[str],
    read: ReadConfig | None = None,
    *,
    may_join: bool = False,
) -> Listed:
    """List the files of `paths`, known ones by the names that they have in the run.

    Args:
        may_join: a file of another content than the one that the run knows by this name is new, where that
            one still lies where it lay; else it is that one, changed.

    Raises: BadSource where paths cannot be read.
    """
    listed, notes = list_files(paths, read)
    by_path = {file.path: file for file in recorded}
    by_name = {file.name: file for file in recorded}
    claimed = {by_path[found.path].name for found in listed if found.path in by_path}
    known: list[Found] = []
    others: list[Found] = []
    for found in listed:
        before = by_path.get(found.path)
        if before is None and found.name not in claimed:
            before = by_name.get(found.name)
            if before and may_join and not _is_same(found, before) and _is_there(before.path):
                before = None
        if before is None:
            others.append(found)
        else:
            known.append(msgspec.structs.replace(found, name=before.name))
    moved = _by_content(others, _without(recorded, known)) if others else {}
    known += [
        msgspec.structs.replace(found, name=moved[found.path])
        for found in others
        if found.path in moved
    ]
    new = [found for found in others if found.path not in moved]
    return Listed(known, _renamed(new, by_name), notes)


def _without(recorded: Sequence[SourceFile], known: Sequence[Found]) -> list[SourceFile]:
    names = {file.name for file in known}
    return [file for file in recorded if file.name not in names]


def _by_content(others: Sequence[Found], missing: Sequence[SourceFile]) -> dict[str, str]:
    """Path -> the run's name of files that went elsewhere under another name.

    Only what is gone from its place can have moved: a copy beside it is a file of its own.
    """
    there = {file.name for file in files_at_their_places(missing)} if missing else set()
    gone: dict[tuple[int, str], list[str]] = {}
    for file in missing:
        if file.name not in there:
            gone.setdefault((file.size, file.digest), []).append(file.name)
    sizes = {size for size, _ in gone}
    moved: dict[str, str] = {}
    for found in others:
        is_like = found.size in sizes and found.path != STDIN
        names = gone.get((found.size, digest_of(found))) if is_like else None
        if names:
            moved[found.path] = names.pop(0)
    return moved


def digest_now(file: Found, before: SourceFile) -> str:
    """Digest of a file as it is; empty where its size alone tells that it is another than `before`.

    One with the path, size and time that it had is taken as unchanged, and is not read.
    """
    if before.path == file.path == STDIN:
        return before.digest
    if before.size != file.size or STDIN in (before.path, file.path):
        return ""
    if file.version:
        return digest_of(file)
    if (before.path, before.mtime_ns) == (file.path, file.mtime_ns):
        return before.digest
    return digest_of(file)


def _is_same(found: Found, before: SourceFile) -> bool:
    return digest_now(found, before) == before.digest


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
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(file.path, error) from error
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


def _is_there(path: str) -> bool:
    if is_remote(path):
        return look_all([path]) != [None]
    return path == STDIN or Path(path).is_file()


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
