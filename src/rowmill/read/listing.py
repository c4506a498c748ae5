"""Paths -> files: what a path, a pattern or a folder stands for.

Promises: files in the order of the paths, by name inside a folder or pattern; no file twice;
names that differ; all paths that cannot be read are told at once; what is skipped is counted.
Knows nothing of: what stands in the files, beyond their first bytes.
Memory: a record a file.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath

import msgspec

from rowmill.errors import BadSource, ConfigError
from rowmill.read.buckets import Objects, objects_of
from rowmill.read.formats import (
    ENCODING_MARKS,
    FORMAT_BY_SUFFIX,
    FileFormat,
    foreign,
    problem_of,
    suffix_of,
    what_is,
)
from rowmill.read.links import Links, real_path
from rowmill.read.opened import read_head
from rowmill.read.partitions import partitions_of
from rowmill.read.unpack import HEAD_BYTES, STDIN, Container, unreadable
from rowmill.read_config import ReadConfig
from rowmill.rows import Partitions
from rowmill.storage.addresses import is_remote
from rowmill.storage.remote import RemoteObject, first_bytes

_STDIN_NAME = "stdin"
_KNOWN = ", ".join(f"`{suffix}`" for suffix in FORMAT_BY_SUFFIX)


class Found(msgspec.Struct, frozen=True):
    """A file to be read."""

    path: str
    """Absolute; `-` is standard input."""
    name: str
    size: int
    mtime_ns: int
    container: Container = ""
    """What it is packed with; of standard input, not known before it is read."""
    format: FileFormat = "jsonl"
    partitions: Partitions = ()
    """Columns that the folders it lies in stand for."""
    version: str = ""
    """What the store calls the object's content now (its ETag); empty for files of this machine."""
    digest: str = ""
    """Of its content, where that was read to tell which file it is."""


def list_files(
    paths: Sequence[str], read: ReadConfig | None = None, *, any_encoding: bool = False
) -> tuple[list[Found], list[str]]:
    """Files that the paths stand for, and notes on what was passed over.

    Args:
        read: how files are understood.
        any_encoding: take text in UTF-16 and UTF-32 too, which is mended but never run.

    Raises: BadSource, naming every path that cannot be read.
    """
    listing = _Listing(read or ReadConfig(), any_encoding=any_encoding)
    for path in paths:
        listing.add(path)
    if not paths:
        listing.problems.append("no input is named; set `source` to a file, folder or pattern")
    if listing.problems:
        raise BadSource(reason=one_or_list(listing.problems))
    return _with_unique_names(listing.found), listing.notes()


def looked_at(found: Found, read: ReadConfig | None = None) -> Found:
    """A file with what its first bytes, and the suffix of its name, say of it: its path may be another by now.

    Raises: BadSource where it cannot be read.
    """
    try:
        head = read_head(found.path, HEAD_BYTES)
    except OSError as error:
        raise unreadable(found.path, error) from error
    return _understood(found, head, read or ReadConfig())


def _understood(found: Found, head: bytes, read: ReadConfig) -> Found:
    container, kind = what_is(STDIN if found.path == STDIN else found.name, head, read)
    return msgspec.structs.replace(found, container=container, format=kind)


def one_or_list(problems: Sequence[str]) -> str:
    """One sentence over all problems, each with its file."""
    if len(problems) == 1:
        return problems[0]
    lines = "".join(f"\n  - {problem}" for problem in problems)
    return f"{len(problems)} inputs cannot be read{lines}"


class _Listing:
    """What has been found so far, path by path."""

    def __init__(self, read: ReadConfig, *, any_encoding: bool) -> None:
        self._read, self._any_encoding = read, any_encoding
        self.found: list[Found] = []
        self.problems: list[str] = []
        self.skipped: Counter[str] = Counter()
        self._real_paths: set[Path] = set()
        self._urls: set[str] = set()

    def notes(self) -> list[str]:
        """A line on all that was skipped, with the reasons; none where nothing was."""
        return [f"passed over: {_counted(self.skipped)}"] if self.skipped else []

    def add(self, path: str) -> None:
        """Take in one path as the user gave it."""
        if is_remote(path):
            self._add_remote(path)
        elif "://" in path:
            self._refuse(
                path, "is at no place that is known; name a path, `s3://`, `gs://` or `az://`"
            )
        elif path == STDIN:
            self._add_stdin()
        elif Path(path).is_dir():
            self._add_many(path, Path(path), self._walk(Path(path)))
        elif os.path.lexists(path):
            self._add_file(Path(path))
        elif glob.has_magic(path):
            self._add_many(path, _fixed_root(path), self._match(path))
        else:
            self._refuse(path, "no such file or folder")

    def _refuse(self, path: str | Path, why: str) -> None:
        shown = str(path).encode(errors="replace").decode()
        self.problems.append(f"`{shown}`: {why}")

    def _add_stdin(self) -> None:
        if any(file.path == STDIN for file in self.found):
            self.skipped["files named before"] += 1
            return
        self.found.append(_understood(Found(STDIN, _STDIN_NAME, 0, 0), b"", self._read))

    def _add_file(self, path: Path) -> None:
        if self._has_known_suffix(path, path.name):
            self._take(path, path.name, within=str(path))

    def _has_known_suffix(self, path: str | Path, name: str) -> bool:
        suffix = suffix_of(name)
        is_known = not suffix or suffix in FORMAT_BY_SUFFIX or self._read.format != "auto"
        if not is_known:
            why = f"`{suffix}` is none of {_KNOWN}; say what it holds with `read.format`"
            self._refuse(path, foreign(name) or _problem_at_head(path) or why)
        return is_known

    def _add_remote(self, url: str) -> None:
        """Objects of a store: one, those below a prefix, or those that a pattern matches."""
        try:
            objects = objects_of(url)
        except (OSError, ConfigError) as error:
            told = error.strerror if isinstance(error, OSError) else str(error)
            self._refuse(_without_query(url), f"cannot be listed ({told})")
            return
        if objects is None:
            self._refuse(url, "no such object or prefix")
        elif not objects.root:
            ((name, found),) = objects.by_name.items()
            if self._has_known_suffix(url, name):
                self._take_remote({name: found})
        elif "run.json" in objects.by_name and "plan/tasks.json" in objects.by_name:
            self._refuse(url, "is the output of a run; give its `results/`")
        else:
            before = self.skipped.copy()
            wanted = self._wanted_of(objects)
            if wanted:
                self._take_remote(wanted)
            else:
                self._refuse_empty(url, before)

    def _wanted_of(self, objects: Objects) -> dict[str, RemoteObject]:
        wanted = {}
        for name, found in sorted(objects.by_name.items()):
            path = PurePosixPath(name)
            is_hidden = any(part.startswith((".", "_")) for part in path.parts[:-1])
            if is_hidden and not objects.asks_hidden:
                self.skipped["hidden files"] += 1
            elif not self._is_wanted(path, asks_hidden=objects.asks_hidden):
                continue
            elif not found.size:
                self.skipped["empty files"] += 1
            else:
                wanted[name] = found
        return wanted

    def _take_remote(self, objects: dict[str, RemoteObject]) -> None:
        """Keep objects that can be read, once; their first bytes are asked for all at once."""
        new = {n: found for n, found in objects.items() if found.url not in self._urls}
        self.skipped["files named before"] += len(objects) - len(new)
        self.skipped = +self.skipped
        self._urls.update(found.url for found in new.values())
        heads = first_bytes([(one.url, one.version) for one in new.values()], HEAD_BYTES)
        for (name, one), head in zip(new.items(), heads, strict=True):
            if isinstance(head, OSError):
                self._refuse(one.url, f"cannot be read ({head.strerror})")
                continue
            problem = (
                ""
                if self._any_encoding and head.startswith(ENCODING_MARKS)
                else problem_of(head)
            )
            if problem:
                self._refuse(one.url, problem)
                continue
            hive = self._read.partitions == "hive"
            folders = partitions_of(one.url.partition("://")[2]) if hive else ()
            found = Found(
                one.url,
                name,
                one.size,
                one.modified_ns,
                partitions=folders,
                version=one.version,
            )
            self.found.append(_understood(found, head, self._read))

    def _add_many(self, given: str, root: Path, entries: Iterator[Path]) -> None:
        """Files of a folder or pattern. Links come last: a file goes by its own name."""
        skipped_before, problems_before = self.skipped.copy(), len(self.problems)
        by_name = {path.relative_to(root).as_posix(): path for path in entries}
        taken = len(self.found)
        for name in sorted(by_name, key=lambda name: (by_name[name].is_symlink(), name)):
            if _is_empty(by_name[name]):
                self.skipped["empty files"] += 1
            else:
                self._take(by_name[name], name, within=str(root / name))
        self.found[taken:] = sorted(self.found[taken:], key=lambda found: found.name)
        if not by_name and len(self.problems) == problems_before:
            self._refuse_empty(given, skipped_before)

    def _refuse_empty(self, given: str, skipped_before: Counter[str]) -> None:
        seen = _counted(self.skipped - skipped_before)
        why = f" (passed over: {seen})" if seen else ""
        self._refuse(given, f"no file of rows there{why}; such files end in {_KNOWN}")

    def _walk(self, root: Path) -> Iterator[Path]:
        links = self._links(root)
        for folder, folders, files in os.walk(
            root, onerror=self._cannot_list, followlinks=True
        ):
            hidden = [name for name in folders if name.startswith((".", "_"))]
            self.skipped["hidden folders"] += len(hidden)
            folders[:] = [
                name
                for name in folders
                if name not in hidden and links.is_walked(Path(folder, name))
            ]
            for name in files:
                path = Path(folder, name)
                if self._is_wanted(path) and links.may_read(path):
                    yield path
        self.skipped = +self.skipped

    def _match(self, pattern: str) -> Iterator[Path]:
        root = _fixed_root(pattern)
        links = self._links(root)
        asks_hidden = any(
            part.startswith((".", "_"))
            for part in Path(pattern).parts
            if part not in (".", "..")
        )
        for path in map(Path, glob.iglob(pattern, recursive=True)):  # noqa: PTH207 - `Path.glob` takes no absolute pattern
            if path.is_dir():
                continue
            parts = path.relative_to(root).parts
            if not asks_hidden and any(part.startswith((".", "_")) for part in parts[:-1]):
                self.skipped["hidden files"] += 1
            elif self._is_wanted(path, asks_hidden=asks_hidden) and links.may_read(path):
                yield path

    def _cannot_list(self, error: OSError) -> None:
        self._refuse(str(error.filename), f"cannot be listed ({error.strerror})")

    def _is_wanted(self, path: PurePath, *, asks_hidden: bool = False) -> bool:
        name = path.name
        if name.startswith((".", "_")) and not asks_hidden:
            self.skipped["hidden files"] += 1
        elif suffix_of(name) not in FORMAT_BY_SUFFIX:
            suffix = path.suffix
            self.skipped[f"`{suffix}` files" if suffix else "files without a suffix"] += 1
        else:
            return True
        return False

    def _links(self, root: Path) -> Links:
        return Links(root, self._read.links, skipped=self.skipped, refuse=self._refuse)

    def _take(self, path: Path, name: str, *, within: str) -> None:
        """Keep a file that can be read, once; `within`: its path as the user gave it, with all folders."""
        real = real_path(path)
        if real in self._real_paths:
            self.skipped["files named before"] += 1
            return
        self._real_paths.add(real)
        try:
            state = path.stat()
            problem = _problem_of(path, state)
            head = b"" if problem else read_head(str(path), HEAD_BYTES)
            if not (self._any_encoding and head.startswith(ENCODING_MARKS)):
                problem = problem or problem_of(head)
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        if problem:
            self._refuse(path, problem)
        else:
            absolute = str(path.absolute())
            folders = partitions_of(within) if self._read.partitions == "hive" else ()
            found = Found(absolute, name, state.st_size, state.st_mtime_ns, partitions=folders)
            self.found.append(_understood(found, head, self._read))


def _counted(skipped: Counter[str]) -> str:
    return ", ".join(f"{what} ({count:,})" for what, count in sorted(skipped.items()))


def _is_empty(path: Path) -> bool:
    try:
        state = path.stat()
    except OSError:
        # a link to nothing, or a file just gone: told with its reason where it is opened
        return False
    return stat.S_ISREG(state.st_mode) and state.st_size == 0


def _problem_at_head(path: str | Path) -> str:
    """What the first bytes of a file of this machine say against it."""
    if not isinstance(path, Path) or not path.is_file():
        return ""
    with contextlib.suppress(OSError):
        return problem_of(read_head(str(path), HEAD_BYTES))
    return ""


def _problem_of(path: Path, state: os.stat_result) -> str:
    """Why a file cannot be an input whatever is in it; empty where it can."""
    if not stat.S_ISREG(state.st_mode):
        return "not a regular file; copy what it gives into a file first"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return "its path is not valid UTF-8; rename it"
    return ""


def _without_query(url: str) -> str:
    """Behind `?` and before `@` people put what nobody may read."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _fixed_root(pattern: str) -> Path:
    """The folder that a pattern names before its first wildcard."""
    parts = Path(pattern).parts
    fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:fixed])


def _with_unique_names(found: Sequence[Found]) -> list[Found]:
    """Names that two files share grow by the folders above them until they differ."""
    names = [file.name for file in found]
    parts = [Path(file.path).parts for file in found]
    lengths = [name.count("/") + 1 for name in names]
    while len(set(names)) < len(names):
        counts = Counter(names)
        for at, name in enumerate(list(names)):
            if counts[name] > 1:
                lengths[at] += 1
                names[at] = "/".join(parts[at][-lengths[at] :]).replace("//", "/")
    return [
        msgspec.structs.replace(file, name=name)
        for file, name in zip(found, names, strict=True)
    ]
