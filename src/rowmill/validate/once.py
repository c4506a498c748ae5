"""Lines -> those in which a column that the job uses stands twice: nobody can say which of the two was meant.

Promises: a line is refused only where one of its columns does occur twice; a column that is merely carried may.
Both are looked for as one writer would spell them: on the fast lanes a second one passes if its letters are escaped,
on the long way if it alone has a tab or several blanks before its colon.
Knows nothing of: what the columns mean.
Memory: a copy of the lines of one window while they are counted.
Source: measured, 300-byte lines on a quiet core: `bytes.count` of one name 0.1 us a row; numpy, over many lines
at once and looking at the last four bytes of the name, 0.02 us, and 0.02 us to join the lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from rowmill.errors import InvalidRow, Unreadable
from rowmill.repeats import find_repeated_key, repeated_key
from rowmill.rows import AnyRow, Request, Row
from rowmill.validate.lines import Columns, shown

_BLOCK_BYTES = 4 * 2**20
_KEY_END, _SPACED_END = b'":', b'" :'
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
        known = [s for n in (self._texts, self._ids) for found in n.values() for s in found]
        self._key = re.compile(rb"(%b)[ \t]*:" % b"|".join(map(re.escape, known)))

    def may_be_broken(self, rows: Sequence[AnyRow], requests: Sequence[Request]) -> bool:
        """Whether rows that all became requests must be looked at one by one.

        A column that is in each of N rows, and is found N times, is in each of them once.
        """
        lines = [row.line for row in rows if type(row) is Row]
        if not lines:
            return False
        blocks = _Blocks(lines)
        in_lines = set(map(blocks.count, self._texts.values()))
        if self._others and in_lines == {0}:
            return False  # none of them took a fast lane
        if not in_lines <= {len(lines)}:
            return True
        totals = [total for total in map(blocks.count, self._ids.values()) if total]
        if len(totals) > 1 or totals not in ([], [_num_ids(requests)]):
            return True
        has_text = None not in [request.text for request in requests]
        return not has_text and any(map(blocks.count, self._others.values()))

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
    blocks = _Blocks(lines).blocks if lines else []
    if any(b"\t" in block or b"\r" in block for block in blocks):
        return False
    ends = [_num_ends(block) for block in blocks]
    num_ends, num_spaced = map(sum, zip(*ends, strict=True)) if ends else (0, 0)
    return num_ends == num_keys and not num_spaced


def _num_ends(block: bytes) -> tuple[int, int]:
    """How many quotes, and how many blanks, stand before a colon."""
    num_ends = num_spaced = 0
    for offset in range(min(2, len(block))):
        pairs = np.frombuffer(block, "<u2", count=(len(block) - offset) // 2, offset=offset)
        num_ends += int(np.count_nonzero(pairs == _QUOTE_COLON))
        num_spaced += int(np.count_nonzero(pairs == _BLANK_COLON))
    return num_ends, num_spaced


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
    if b":" not in raw or (isinstance(value, list) and _is_flat(raw, value)):
        return
    compact = b"" if value is None else msgspec.json.format(raw, indent=-1)
    name = repeated_key(compact, value) if compact else find_repeated_key(raw)
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
    """Names in quotes, as they are and with other letters than ASCII escaped."""
    return {
        name: sorted({msgspec.json.encode(name), json.dumps(name).encode()}) for name in names
    }


def _num_ids(requests: Sequence[Request]) -> int:
    return len(requests) - [request.id for request in requests].count(b"")


class _Blocks:
    """Lines joined into blocks, to be searched together."""

    def __init__(self, lines: list[bytes]) -> None:
        mean = sum(map(len, lines)) // len(lines) + 1
        step = max(1, _BLOCK_BYTES // mean)
        self.blocks = [b"".join(lines[i : i + step]) for i in range(0, len(lines), step)]

    def count(self, spellings: list[bytes]) -> int:
        """How often a name is found, and what ends as it does."""
        return sum([_count(block, needle) for block in self.blocks for needle in spellings])


def _count(block: bytes, needle: bytes) -> int:
    """Places where the last four bytes of a needle are found, so its own at least."""
    if len(needle) < 4:
        return block.count(needle)
    word = np.frombuffer(needle[-4:], "<u4")[0]
    count = 0
    for offset in range(min(4, len(block) - 3)):
        words = np.frombuffer(block, "<u4", count=(len(block) - offset) // 4, offset=offset)
        count += int(np.count_nonzero(words == word))
    return count
