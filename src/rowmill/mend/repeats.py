"""Copies with repeated ids -> copies without: the second row of an id gets `-2` behind it, the third `-3`.

Promises: the first row of an id keeps it; a new id is no other row's, whether that one comes before or after;
nothing else of a line changes; files without repeated ids are not written again.
Rows that cannot be asked keep their ids, as the job keeps them, and count as taken only.
Knows nothing of: faults of lines.
Memory: 16 bytes an id and 8 a row that repeats one (SeenIds), one block of text.
Time: one pass over all files, a second over those with repeats; a read of a few kB for an id that comes back
after many others.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from io import FileIO
from operator import or_
from pathlib import Path

import msgspec
import xxhash

from rowmill.errors import RowError, StorageError
from rowmill.ids import SeenIds
from rowmill.mend.lines import is_utf8
from rowmill.mend.text import BLOCK_BYTES, Piece, whole_lines
from rowmill.read.jsonl import MAX_LINE_BYTES
from rowmill.read.partitions import line_adder, partitions_of
from rowmill.rows import Row
from rowmill.storage import LocalStorage
from rowmill.storage.drafts import open_draft
from rowmill.validate import Recipe
from rowmill.validate.ids import IdColumns
from rowmill.validate.lines import split_columns

OFFSET_BITS = 44
"""A key is the number of a file and the place of a line in it: 16 TiB a file, a million files."""
MAX_NUMBERS = 1 << 18
SMALL_STEPS = 8
_SPACE = b" \t\r"
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]', re.DOTALL)
_FIRST_READ = 1 << 14


class Repeats:
    """The ids of all copies."""

    def __init__(
        self,
        storage: LocalStorage,
        names: Sequence[str],
        *,
        recipe: Recipe,
        columns: IdColumns,
        with_folders: bool = False,
    ) -> None:
        """Copies to look through; `with_folders`: folders such as `region=007` are columns of their rows."""
        self._storage, self._names = storage, names
        self._recipe, self._columns = recipe, columns
        self._adders = [
            line_adder(partitions_of(name) if with_folders else ()) for name in names
        ]
        self._seen = SeenIds(confirm=self._id_at)
        self._others = SeenIds(confirm=lambda _: b"")
        """Ids of rows that cannot be asked: they may repeat, but are no new ids for others."""
        self._numbers: dict[int, int] = {}
        """Hash of an id -> the last number given to a row of it; forgotten when there are many."""
        self._opened: tuple[int, FileIO] | None = None
        """The copy from which an id was confirmed last."""

    def mend(self) -> dict[str, int]:
        """Make the ids of all copies unique; how many rows got a new one, by name of the copy.

        Raises: StorageError.
        """
        try:
            repeated = [self._find(file) for file in range(len(self._names))]
        finally:
            if self._opened is not None:
                self._opened[1].close()
        return {
            name: self._rewrite(file, keys)
            for file, (name, keys) in enumerate(zip(self._names, repeated, strict=True))
            if keys
        }

    def _find(self, file: int) -> array[int]:
        """Keys of the rows that have an id of an earlier row, in order."""
        repeated = array("Q")
        for piece, key in self._pieces(file):
            if piece.is_long:
                continue
            keys, lines = zip(*_placed(piece.text, key), strict=True)
            ids = [self._id_of(line, file) for line in lines]
            repeated.extend(at for at, _ in self._seen.add(ids, keys))
            bad = [
                (at, line) for at, line, id_ in zip(keys, lines, ids, strict=True) if not id_
            ]
            self._others.add(
                [self._other_id(line, file) for _, line in bad], [at for at, _ in bad]
            )
        return repeated

    def _rewrite(self, file: int, keys: array[int]) -> int:
        draft = open_draft(self._storage, self._names[file])
        done = 0
        try:
            for piece, key in self._pieces(file):
                stop = bisect_left(keys, key + len(piece.text), lo=done)
                if stop > done:
                    draft.write(self._renamed(piece.text, key, keys[done:stop]))
                else:
                    draft.write(piece.text)
                done = stop
            draft.finish()
        except BaseException:
            draft.abandon()
            raise
        return len(keys)

    def _renamed(self, text: bytes, key: int, keys: Sequence[int]) -> bytes:
        """The lines of a piece, with new ids in those of the given keys."""
        lines = dict(_placed(text, key))
        left = list(keys)
        tries = 0
        while left:
            tries += 1
            for at, new in self._free(
                left, [self._id_of(lines[at], at >> OFFSET_BITS) for at in left], tries
            ):
                lines[at] = self._with_id(lines[at], new, at >> OFFSET_BITS)
                left.remove(at)
        return b"\n".join([*lines.values(), b""])

    def _free(self, keys: list[int], ids: list[bytes], tries: int) -> list[tuple[int, bytes]]:
        """(key, new id) of the rows for which the next number is free; these ids are taken then."""
        new = [self._candidate(id_, tries) for id_ in ids]
        held = map(or_, self._seen.holds(new), self._others.holds(new))
        free = {at: id_ for at, id_, no in zip(keys, new, held, strict=True) if not no}
        # 7 and "7" come to the same new id
        for at, _ in self._seen.add(list(free.values()), list(free)):
            del free[at]
        return list(free.items())

    def _candidate(self, id_: bytes, tries: int) -> bytes:
        """The next id for a row that repeats one; steps grow where many numbers in turn are taken."""
        hash_ = xxhash.xxh3_64_intdigest(id_)
        step = 1 if tries <= SMALL_STEPS else 1 << (tries - SMALL_STEPS)
        number = self._numbers.get(hash_, 1) + step
        if len(self._numbers) >= MAX_NUMBERS:
            self._numbers.clear()
        self._numbers[hash_] = number
        return _text_of(id_) + b'-%d"' % number

    def _with_id(self, line: bytes, new: bytes, file: int) -> bytes:
        """The line with the number of a new id behind its id, which keeps its escapes.

        An id that the row has from its folder is written into the row: its own column comes first.
        """
        name, _ = self._columns.found(split_columns(self._as_read(line, file)))
        if name not in split_columns(line):
            row = line.strip(_SPACE)
            added = line_adder(((name, msgspec.json.decode(new, type=str)),))(row)
            return line.replace(row, added)
        start, stop = value_span(line, name)
        number = new[new.rindex(b"-") :]
        return line[:start] + _text_of(line[start:stop]) + number + line[stop:]

    def _as_read(self, line: bytes, file: int) -> bytes:
        """The row as a run reads it: with the columns of its folders."""
        return self._adders[file](line.strip(_SPACE))

    def _id_of(self, line: bytes, file: int) -> bytes:
        """Id of a row that can be asked."""
        if len(line) > MAX_LINE_BYTES or b"\0" in line or not is_utf8(line):
            return b""
        try:
            return self._recipe.request(Row(0, self._as_read(line, file))).id
        except RowError:
            return b""

    def _other_id(self, line: bytes, file: int) -> bytes:
        """Id of a row that cannot be asked, or that has none."""
        return self._columns.of(Row(0, self._as_read(line, file)))

    def _id_at(self, key: int) -> bytes:
        file, offset = key >> OFFSET_BITS, key & ((1 << OFFSET_BITS) - 1)
        path = self._storage.path(self._names[file])
        try:
            if self._opened is None or self._opened[0] != file:
                if self._opened is not None:
                    self._opened[1].close()
                self._opened = file, FileIO(path)
            return self._id_of(_line_at(self._opened[1].fileno(), offset), file)
        except OSError as error:
            raise _unreadable(path, error) from error

    def _pieces(self, file: int) -> Iterator[tuple[Piece, int]]:
        """All of a copy, each piece with the key of its first line."""
        path = self._storage.path(self._names[file])
        key = file << OFFSET_BITS
        try:
            with FileIO(path) as opened:
                for piece in whole_lines(iter(lambda: opened.read(BLOCK_BYTES), b"")):
                    yield piece, key
                    key += len(piece.text)
        except OSError as error:
            raise _unreadable(path, error) from error


def value_span(line: bytes, name: str) -> tuple[int, int]:
    """Where the value of a column stands in a line that is one JSON object; an empty span where there is none."""
    plain = json.dumps(name, ensure_ascii=False).encode()
    span = (0, 0)
    word, start = b"", -1
    for found in _outer_tokens(line):
        token = found.group()
        if token == b":":
            # a name with escapes may be the same one
            is_it = word == plain or (b"\\" in word and json.loads(word) == name)
            start = found.end() if is_it else -1
        elif token[:1] == b'"':
            word = token
        elif start >= 0:
            span, start = (start, found.start()), -1
    value = line[slice(*span)]
    begin = span[0] + len(value) - len(value.lstrip())
    return begin, begin + len(value.strip())


def _outer_tokens(line: bytes) -> Iterator[re.Match[bytes]]:
    """Strings, colons and commas of the outermost object, and the brace that ends it."""
    depth = 0
    for found in _TOKEN.finditer(line):
        token = found.group()
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if not depth:
                yield found
        elif depth == 1:
            yield found


def _unreadable(path: Path, error: OSError) -> StorageError:
    return StorageError(path=str(path), reason=f"cannot be read ({error.strerror or error})")


def _text_of(id_: bytes) -> bytes:
    """JSON text of an id as a string, its last quote left off."""
    return id_[:-1] if id_.startswith(b'"') else b'"' + id_


def _placed(text: bytes, key: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece, each with its key; only a part of a long line has no line feed at its end."""
    for line in text.removesuffix(b"\n").split(b"\n"):
        yield key, line
        key += len(line) + 1


def _line_at(fd: int, offset: int) -> bytes:
    num_bytes = _FIRST_READ
    while True:
        text = os.pread(fd, num_bytes, offset)
        stop = text.find(b"\n")
        if stop >= 0 or len(text) < num_bytes:
            return text[:stop] if stop >= 0 else text
        num_bytes *= 4
