"""Lines -> those in which a column that the job uses stands twice: nobody can say which of the two was meant.

Promises: a line is refused only where one of its columns does occur twice; a column that is merely carried may.
Both are looked for as one writer would spell them: on the fast lanes a second one passes if its letters are escaped,
on the long way if it alone has a tab or several blanks before its colon.
Knows nothing of: what the columns mean.
Memory: a copy of the lines of one window while they are counted.
Source: measured, 300-byte lines: `bytes.count` of one name 0.1 to 0.3 us a row; numpy, over many lines at once and
looking at four bytes of the name, 0.04 us, and 0.01 us to join the lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.errors import InvalidRow, Unreadable
from rowmill.repeats import find_repeated_key, repeated_key
from rowmill.rows import AnyRow, Request, Row
from rowmill.validate.lines import Columns, shown

_WORD = 4
_BLOCK_BYTES = 2**19
"""Stays in the cache of a core."""
_KEY_END, _SPACED_END = b'":', b'" :'
_KEY = re.compile(rb'"[ \t\r\n]*:')
_QUOTE_COLON, _BLANK_COLON = (int.from_bytes(pair, "little") for pair in (b'":', b" :"))


class Once:
    """Columns that a line may hold once."""

    def __init__(
        self, texts: Iterable[str], ids: Iterable[str], others: Iterable[str] = ()
    ) -> None:
        """Columns that fast lanes read.

        Args:
            texts: those that the prompt is made of: all of them are in a row with text but without `others`.
            ids: those that may hold the id.
            others: those that may stand in place of `texts`.
        """
        self._texts, self._ids, self._others = map(_needles, (texts, ids, others))
        self._names = frozenset((*self._texts, *self._ids))
        known = [
            s[:-1] for n in (self._texts, self._ids) for found in n.values() for s in found
        ]
        self._key = re.compile(rb"(%b)[ \t]*:" % b"|".join(map(re.escape, known)))

    def may_be_broken(self, rows: Sequence[AnyRow], requests: Sequence[Request]) -> bool:
        """Whether rows that all became requests must be looked at one by one.

        A column that is in each of N rows, and is found N times, is in each of them once.
        """
        lines = [row.line for row in rows if type(row) is Row]
        if not lines:
            return False
        blocks = _Blocks(lines)
        if blocks.have_spaced_ends():
            return True
        in_lines = {blocks.count(names, len(lines)) for names in self._texts.values()}
        if self._others and in_lines == {0}:
            return False  # none of them took a fast lane
        if not in_lines <= {len(lines)}:
            return True
        num_ids = _num_ids(requests)
        totals = [n for names in self._ids.values() if (n := blocks.count(names, num_ids))]
        if len(totals) > 1 or totals not in ([], [num_ids]):
            return True
        has_text = None not in [request.text for request in requests]
        return not has_text and any(blocks.count(names, 0) for names in self._others.values())

    def check(self, row: AnyRow) -> None:
        """Refuse a row in which one of the columns stands twice.

        Raises:
            Unreadable: names the column.
        """
        if type(row) is not Row:
            return
        found = self._key.findall(row.line)
        if len(found) > len(set(found)):
            refuse_repeated(repeated_columns(row.line), self._names)


def have_keys(lines: list[bytes], num_keys: int) -> bool:
    """Whether there are so many keys in lines that have at least as many; False where that is not plain to see.

    No name then stands twice in any of them. White space before a colon would hide a key, so there must be none.
    """
    blocks = _Blocks(lines)
    return blocks.num_ends() == num_keys and not blocks.have_spaced_ends()


def check_columns(line: bytes, columns: Columns, used: frozenset[str]) -> None:
    """Refuse a line in which a used column stands twice; `columns` is what was read from it.

    Raises:
        Unreadable: names the column.
    """
    refuse_repeated(repeated_columns_of(line, columns), used)


def repeated_columns_of(line: bytes, columns: Columns) -> list[str]:
    """Names that an object has twice, exactly; `columns` is what was read from it.

    A dropped column leaves a key end that is in none of the others; a space before a colon hides one.
    """
    found = line.count(_KEY_END)
    if _SPACED_END not in line:
        inner = 0 if found == len(columns) else _inner_ends(columns)
        if found == len(columns) + inner:
            return []
    return repeated_columns(line)


def _inner_ends(columns: Columns) -> int:
    return sum([raw.count(_KEY_END) for raw in columns.values()])


def refuse_repeated_inside(raw: bytes, field: str, value: Any = None) -> None:
    """Refuse a value that is used where an object in it has a key twice.

    Args:
        value: what was read from `raw`, where it was.

    Raises:
        InvalidRow: names the column and the key.
    """
    if raw[:1] not in b"[{" or b":" not in raw:
        return
    if isinstance(value, list) and _is_flat(raw, value):
        return
    if _KEY.search(raw) is None:
        return
    try:
        compact = b"" if value is None else msgspec.json.format(raw, indent=-1)
        name = repeated_key(compact, value) if compact else find_repeated_key(raw)
    except RecursionError as error:
        reason = f"`{field}` is nested too deeply; flatten it"
        raise InvalidRow(reason=reason) from error
    except UnicodeDecodeError as error:
        reason = f"`{field}` is no UTF-8, expected a file in UTF-8"
        raise Unreadable(reason=reason) from error
    if name is not None:
        reason = (
            f"`{field}` has an object with the key `{shown(name)}` twice, expected each once"
        )
        raise InvalidRow(reason=reason)


def _is_flat(raw: bytes, value: list[Any]) -> bool:
    """Whether all keys of a list are those of its objects, each of them read: so of most conversations."""
    num_keys = sum([len(part) for part in value if type(part) is dict])
    return raw.count(_KEY_END) == num_keys and _SPACED_END not in raw


def refuse_repeated(names: Iterable[str], used: Iterable[str]) -> None:
    """Raises: Unreadable where one of the names is used: nothing that can be carried says which was meant."""
    twice = sorted(set(names).intersection(used))
    if twice:
        reason = f"`{shown(twice[0])}` stands twice in the line, expected each column once"
        raise Unreadable(reason=reason)


def repeated_columns(line: bytes) -> list[str]:
    """Names that the object of a line has twice, exactly."""
    try:
        found = _decoder.decode(line.decode())
    except RecursionError as error:
        reason = "the line is nested too deeply to be read; flatten it"
        raise Unreadable(reason=reason) from error
    return list(found) if isinstance(found, tuple) else []


def _repeated(pairs: list[tuple[str, object]]) -> tuple[str, ...]:
    seen: set[str] = set()
    return tuple(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]


# Whatever an object holds, what is made of it are its repeated names; the last one made is the line's.
_decoder = json.JSONDecoder(
    object_pairs_hook=_repeated, parse_int=len, parse_float=len, parse_constant=len
)


def _needles(names: Iterable[str]) -> dict[str, list[bytes]]:
    """Names as keys, as they are and with other letters than ASCII escaped."""
    return {
        name: sorted({msgspec.json.encode(name) + b":", json.dumps(name).encode() + b":"})
        for name in names
    }


def _num_ids(requests: Sequence[Request]) -> int:
    return len(requests) - [request.id for request in requests].count(b"")


class _Blocks:
    """Lines joined into blocks, to be searched together."""

    def __init__(self, lines: list[bytes]) -> None:
        mean = sum(map(len, lines)) // max(len(lines), 1) + 1
        step = max(1, _BLOCK_BYTES // mean)
        self._blocks = [b"".join(lines[i : i + step]) for i in range(0, len(lines), step)]

    def count(self, spellings: list[bytes], expected: int) -> int:
        """How often a key is found; at most so often, where that is as often as expected.

        Most are, and by their last bytes alone. `custom_id` and `id` differ in the fourth before the colon.
        """
        last = [
            needle[-5:-1] if len(needle) > _WORD else needle[-_WORD:] for needle in spellings
        ]
        ends = [int.from_bytes(word, "little") for word in last]
        found = sum([_count(block, end, "<u4") for block in self._blocks for end in ends])
        if found in (0, expected) and min(map(len, spellings)) >= _WORD:
            return found
        return sum([block.count(needle) for block in self._blocks for needle in spellings])

    def num_ends(self) -> int:
        """How many quotes stand before a colon."""
        return sum([_count(block, _QUOTE_COLON, "<u2") for block in self._blocks])

    def have_spaced_ends(self) -> bool:
        """Whether a quote may stand before white space and a colon: such a key is not found."""
        return any(map(_has_spaced_end, self._blocks))


def _has_spaced_end(block: bytes) -> bool:
    if b"\t" in block or b"\r" in block:
        return True
    for offset, pairs in _words(block, "<u2"):
        at = np.flatnonzero(pairs == _BLANK_COLON) * 2 + offset
        if any(block[place - 1] in b'" ' for place in at.tolist()):
            return True
    return False


def _count(block: bytes, word: int, kind: str) -> int:
    return sum([int(np.count_nonzero(words == word)) for _, words in _words(block, kind)])


def _words(block: bytes, kind: str) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """A block as integers, from each offset on."""
    size = np.dtype(kind).itemsize
    for offset in range(min(size, len(block) - size + 1)):
        count = (len(block) - offset) // size
        yield offset, np.frombuffer(block, kind, count=count, offset=offset)
