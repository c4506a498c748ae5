"""Files -> Shards: the whole input as slices that can be read alone, and what a resume may take for it.

Promises: shards in file order, those of a file end to end; a resume reads what the run began with,
or is refused with every file that differs.
Knows nothing of: rows, JSON, the job.
Memory: a record a file and a shard. Time: one pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from rowmill.errors import BadSource
from rowmill.read.drift import drift_notes
from rowmill.read.known import digest_now, files_at_their_places, match_files
from rowmill.read.listing import Found, looked_at, one_or_list
from rowmill.read.opened import state_of, with_next
from rowmill.read.scan import Place, Scanned, SourceFile, digest_of, scan_text
from rowmill.read.unpack import STDIN, container_words, unreadable
from rowmill.read_config import ReadConfig
from rowmill.rows import Shard
from rowmill.storage.addresses import is_remote
from rowmill.storage.remote import Slice

MIN_SHARD_BYTES = 4 << 20
MAX_SHARD_BYTES = 64 << 20
WANTED_SHARDS = 4096
TELL_EVERY_S = 5.0
"""Between words on how far the reading of many files is."""


class Source(msgspec.Struct, frozen=True):
    """The whole input: its files, and the slices it is read in."""

    files: list[SourceFile]
    shards: list[Shard]
    """In file order; `shards[i].index == i`."""
    notes: list[str] = []
    """What was passed over, for people."""

    @property
    def num_lines(self) -> int:
        """Lines of all files, blank ones counted."""
        return sum(file.num_lines for file in self.files)

    def identity(self) -> dict[str, str]:
        """Digest of each file by its name: equal where the input is the same."""
        return {file.name: file.digest for file in self.files}

    def changed(self, recorded: Sequence[SourceFile]) -> dict[str, str]:
        """Names of files that differ from the recorded ones, with what is the matter."""
        old = {file.name: file.digest for file in recorded}
        return _differences(old, self.identity())


def open_source(
    paths: Sequence[str],
    *,
    shard_bytes: int | None = None,
    spool: Path | None = None,
    read: ReadConfig | None = None,
    known: Sequence[SourceFile] = (),
    first_index: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Source:
    """Find the files, count their lines and cut them into shards.

    Args:
        paths: files, patterns or folders, read in this order; `-` is standard input.
        shard_bytes: size of a shard, about. None: a 4096th of the input within 4 to 64 MiB.
            A task that starts inside a shard reads over what lies before, so small is good;
            the run keeps a record of each, so there must not be too many.
        spool: folder for the text of what cannot be read in place: compressed files, arrays and
            standard input. None: such input is refused.
        read: how files are understood.
        known: files that are cut already: they are left out, and no other gets the name of one.
        first_index: index of the first shard.
        tell: told in words, now and then, how many files are read.

    Raises:
        BadSource: the input cannot be read; names every file.
        StorageError: what is unpacked cannot be written.
    """
    listed = match_files(known, paths, read)
    found, notes = listed.new, listed.notes
    if shard_bytes is None:
        share = sum(file.size for file in found) // WANTED_SHARDS
        shard_bytes = min(max(share, MIN_SHARD_BYTES), MAX_SHARD_BYTES)
    files: list[SourceFile] = []
    shards: list[Shard] = []
    own_columns: dict[str, Sequence[str]] = {}
    problems: list[str] = []
    for number, file in enumerate(_told(found, tell), len(known)):
        place = Place(number, first_index + len(shards), spool)
        try:
            scanned = _scan(file, place, shard_bytes, read)
        except BadSource as error:
            problems.append(str(error.fields["reason"]))
            continue
        files.append(scanned.file)
        shards += scanned.shards
        if scanned.own_columns:
            own_columns[file.name] = scanned.own_columns
    if problems:
        raise BadSource(reason=one_or_list(problems))
    return Source(files, shards, [*notes, *drift_notes(shards, own_columns)])


def _slice_of(file: Found) -> Slice | None:
    if not file.version or file.format in ("parquet", "arrow"):
        return None
    return Slice(file.path, file.version, 0, file.size)


def _told(found: Sequence[Found], tell: Callable[[str], None] | None) -> Iterator[Found]:
    """The files one by one; how far they are is told where they take long."""
    told_at = time.monotonic()
    for number, file in enumerate(with_next(found, _slice_of)):
        if tell is not None and number and time.monotonic() - told_at >= TELL_EVERY_S:
            told_at = time.monotonic()
            tell(f"input   {number:,} of {len(found):,} files read")
        yield file


def open_recorded(
    files: Sequence[SourceFile],
    shards: Sequence[Shard],
    *,
    paths: Sequence[str] | None = None,
    spool: Path | None = None,
    read: ReadConfig | None = None,
    joined: Collection[str] = (),
    may_join: bool = False,
) -> Source:
    """The source of an earlier start, its shards used as they were cut.

    Args:
        files: as they were counted.
        shards: as they were cut, with the columns of the folders that their files lay in then.
        paths: what the job names now. Files added to it are then noticed, and files that
            moved with their content are read from their new place.
        spool: the folder of spools; one that is missing is made anew.
        read: how files are understood.
        joined: names of files that need not be in `paths`.
        may_join: files of `paths` that are not known do no harm, and none need be in it.

    Raises:
        BadSource: naming every file that changed, is gone or was added; or a spool that is lost for good.
        StorageError: a spool cannot be made anew.
    """
    now = _files_now(files, paths, read, joined, may_join=may_join)
    differing = _compare(files, now)
    if differing:
        each = ", ".join(f"`{name}` ({what})" for name, what in differing.items())
        reason = f"the input is not what the run began with: {each}; put it back, or start anew"
        raise BadSource(reason=reason)
    found_by_name = {file.name: file for file in now}
    cut_by_name: dict[str, list[Shard]] = {file.name: [] for file in files}
    for shard in shards:
        cut_by_name[shard.name].append(shard)
    path_by_name = {name: found.path for name, found in found_by_name.items()}
    for number, file in enumerate(files):
        if file.spool:
            found, cut = found_by_name[file.name], cut_by_name[file.name]
            place = Place(number, cut[0].index, spool)
            path_by_name[file.name] = _spool_of(found, file, cut, place, read)
    return Source(
        [_as_found(file, found_by_name[file.name]) for file in files],
        [msgspec.structs.replace(shard, path=path_by_name[shard.name]) for shard in shards],
    )


def _as_found(file: SourceFile, found: Found) -> SourceFile:
    """A file of the content that was counted, as it lies now: it need not be read again to be known."""
    return msgspec.structs.replace(file, path=found.path, mtime_ns=found.mtime_ns)


def changed(
    recorded: Sequence[SourceFile],
    *,
    paths: Sequence[str] | None = None,
    read: ReadConfig | None = None,
    joined: Collection[str] = (),
    may_join: bool = False,
) -> dict[str, str]:
    """Names of files that are not as recorded: `changed`, `gone`, `added`, or `not named`: it is there still.

    A file with the path, size and time it had is taken as unchanged; one of equal size
    and another time or place is read and its digest compared. Standard input is what it was.

    Args:
        recorded: the files as they were counted.
        paths: what the job names now; None looks at the recorded files alone.
        read: how files are understood.
        joined: names of files that need not be in `paths`: they are looked for where they were.
        may_join: files of `paths` that are not known do no harm, and none need be in it.

    Raises: BadSource where `paths` cannot be read.
    """
    return _compare(recorded, _files_now(recorded, paths, read, joined, may_join=may_join))


def _compare(recorded: Sequence[SourceFile], now: Sequence[Found]) -> dict[str, str]:
    old = {file.name: file for file in recorded}
    digests = {
        file.name: digest_now(file, old[file.name]) if file.name in old else "" for file in now
    }
    told = _differences({file.name: file.digest for file in recorded}, digests)
    lacking = [old[name] for name, what in told.items() if what == "gone"]
    there = files_at_their_places(lacking) if lacking else []
    return told | {file.name: "not named" for file in there}


def _differences(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    told = {}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            told[name] = "gone"
        elif name not in old:
            told[name] = "added"
        elif old[name] != new[name]:
            told[name] = "changed"
    return told


def _files_now(
    recorded: Sequence[SourceFile],
    paths: Sequence[str] | None,
    read: ReadConfig | None,
    joined: Collection[str],
    *,
    may_join: bool,
) -> list[Found]:
    if paths is None:
        return files_at_their_places(recorded)
    listed = match_files(recorded, paths, read)
    now = [*listed.known, *([] if may_join else listed.new)]
    named = {file.name for file in now}
    rest = [f for f in recorded if f.name not in named and (may_join or f.name in joined)]
    return [*now, *files_at_their_places(rest)]


def _scan(file: Found, place: Place, shard_bytes: int, read: ReadConfig | None) -> Scanned:
    if file.format not in ("parquet", "arrow"):
        return scan_text(file, shard_bytes=shard_bytes, place=place, read=read)
    if file.path == STDIN:
        reason = (
            f"`-`: {file.format.capitalize()} is read from a file of its own; write it into one"
        )
        raise BadSource(reason=reason)
    if file.container:
        reason = f"`{file.path}`: is {file.format.capitalize()} inside {container_words(file.container)}; unpack it"
        raise BadSource(reason=reason)
    if file.format == "parquet":
        from rowmill.read.parquet import scan as scan_parquet

        shards = scan_parquet(file, place.first_shard, shard_bytes)
    else:
        from rowmill.read.arrow import scan as scan_arrow

        shards = scan_arrow(file, place.first_shard, shard_bytes)
    scanned = SourceFile(
        path=file.path,
        name=file.name,
        size=file.size,
        mtime_ns=file.mtime_ns,
        digest=digest_of(file),
        num_lines=sum(shard.num_lines for shard in shards),
    )
    return Scanned(scanned, shards)


def _spool_of(
    found: Found,
    file: SourceFile,
    cut: Sequence[Shard],
    place: Place,
    read: ReadConfig | None,
) -> str:
    """Path of a file's spool, made anew where it is lost."""
    if place.spool is None:
        reason = f"`{file.path}`: was unpacked, and there is no folder to find that in"
        raise BadSource(reason=reason)
    kept = cut[0].path
    path = kept if is_remote(kept) else str(place.spool / file.spool)
    if _size_of(path) == max((shard.frame[1] for shard in cut if shard.frame), default=0):
        return path
    if file.path == STDIN:
        reason = (
            f"`{path}`: it holds what standard input gave, and is gone or damaged; start anew"
        )
        raise BadSource(reason=reason)
    path = str(place.spool / file.spool)
    # Its columns are those of the folders that it lay in when it was cut, which `found` may not tell, or tell anew.
    as_cut = msgspec.structs.replace(looked_at(found, read), partitions=cut[0].partitions)
    again = _scan(as_cut, place, file.shard_bytes, read)
    as_before = [msgspec.structs.replace(shard, path=path) for shard in cut]
    if (again.file.spool, again.shards) != (file.spool, as_before):
        reason = (
            f"`{file.path}`: unpacked anew, it is not cut as it was; start anew, or go on with"
            " the versions of rowmill and Zstandard that began the run"
        )
        raise BadSource(reason=reason)
    return path


def _size_of(path: str) -> int:
    """Of a file, in bytes; -1 where there is none."""
    try:
        return state_of(path).size
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise unreadable(path, error) from error
