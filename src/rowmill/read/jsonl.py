"""Shard -> Rows: the lines of one slice of a JSON Lines file, bodies left raw.

Promises: every non-blank line of the asked range comes once, in order, as `Row` or `BadLine`;
a line's ordinal is its offset in the shard, blank lines counted; a file that is not what it was
when it was counted is an error, never other rows.
Knows nothing of: JSON beyond its white space, the job, the user's ids.
Memory: one chunk (1 MiB), or the longest line up to `max_line_bytes`. Time: about 0.5 us a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from rowmill.read import text
from rowmill.read.badline import BadLine
from rowmill.read.opened import LocalFile
from rowmill.rows import Row, Shard, pack_key

CHUNK_BYTES = 1 << 20
CHUNK_ROWS = 2000
MAX_LINE_BYTES = 64 << 20

_JSON_SPACE = b" \t\r\n"


class _Lines(NamedTuple):
    """Neighbouring lines of a shard, line feeds taken off."""

    ordinal: int
    """Of the first line."""
    lines: list[bytes]
    long_bytes: int = 0
    """Over 0: this is one line, not kept, and so long."""

    def is_clean(self) -> bool:
        """Whether all lines are UTF-8 without NUL, found out in one pass over them together."""
        together = b"\n".join(self.lines)
        try:
            together.isascii() or together.decode()
        except UnicodeDecodeError:
            return False
        return b"\0" not in together


def read_lines(
    shard: Shard,
    *,
    first: int = 0,
    stop: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[list[Row | BadLine]]:
    """Rows of the lines `first` to `stop` of a shard, in chunks of at most `CHUNK_ROWS`.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    key_of_first = pack_key(shard.index, 0)
    for part in _read_parts(shard, first, stop, max_line_bytes):
        key = key_of_first + part.ordinal
        if part.long_bytes:
            yield [BadLine(key, _too_long(part.long_bytes, max_line_bytes))]
            continue
        rows: list[Row | BadLine]
        if part.is_clean():
            bodies = list(map(bytes.strip, part.lines, repeat(_JSON_SPACE)))
            rows = list(map(Row, range(key, key + len(bodies)), bodies))
            if b"" in bodies:
                rows = [row for row, body in zip(rows, bodies, strict=True) if body]
        else:
            rows = [
                _row_or_bad(at, line)
                for at, line in enumerate(part.lines, key)
                if line.strip(_JSON_SPACE)
            ]
        if rows:
            yield rows


def read_spans(
    shard: Shard,
    *,
    first: int = 0,
    stop: int | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[list[tuple[int, bytes]]]:
    """(ordinal, body) of every non-blank line, unchecked: what publishing joins answers to.

    Returns: the same ordinals as `read_lines`, bad lines among them; the body of a line over
        `max_line_bytes` is empty, and no other body is.
    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    for part in _read_parts(shard, first, stop, max_line_bytes):
        if part.long_bytes:
            yield [(part.ordinal, b"")]
            continue
        spans = [
            (at, body)
            for at, line in enumerate(part.lines, part.ordinal)
            if (body := line.strip(_JSON_SPACE))
        ]
        if spans:
            yield spans


def _row_or_bad(key: int, line: bytes) -> Row | BadLine:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return BadLine(key, _not_utf8(line, error.start))
    at = line.find(b"\0")
    if at < 0:
        return Row(key, line.strip(_JSON_SPACE))
    return BadLine(key, _has_nul(line, at))


def _not_utf8(line: bytes, at: int) -> str:
    """The byte's value alone is told: it helps to find it and gives no text away."""
    return (
        f"not valid UTF-8: byte 0x{line[at]:02X} at position {at + 1} of the line;"
        " write the file as UTF-8"
    )


def _has_nul(line: bytes, at: int) -> str:
    if 3 * line.count(0) > len(line):
        return "every other byte is NUL, as in UTF-16 text; write the file as UTF-8"
    return (
        f"a raw NUL byte at position {at + 1} of the line, which JSON does not allow;"
        " write it as `\\u0000`"
    )


def _too_long(num_bytes: int, max_line_bytes: int) -> str:
    return (
        f"a line of {num_bytes:,} bytes, limit {max_line_bytes:,}; shorten it or split the row"
    )


def _read_parts(
    shard: Shard, first: int, stop: int | None, max_line_bytes: int
) -> Iterator[_Lines]:
    """The lines `first` to `stop`, no more than `CHUNK_ROWS` at once."""
    last = shard.num_lines if stop is None else min(stop, shard.num_lines)
    if first >= last:
        return
    with text.open_slice(shard, chunk_bytes=CHUNK_BYTES, fits=_fits) as blocks:
        lines = _read_blocks(blocks, shard, max(first, 0), max_line_bytes)
        yield from _within(lines, max(first, 0), last)


def _fits(file: LocalFile, shard: Shard, size: int) -> bool:
    """Whether the slice still begins and ends where lines of the file do."""
    if size < shard.stop:
        return False
    begins = shard.first_line == 1 or file.pread(1, shard.start - 1) == b"\n"
    return begins and (shard.stop == size or file.pread(1, shard.stop - 1) == b"\n")


def _within(blocks: Iterator[_Lines], first: int, last: int) -> Iterator[_Lines]:
    for block in blocks:
        begin = max(first - block.ordinal, 0)
        end = min(last - block.ordinal, len(block.lines) or 1)
        if block.long_bytes:
            if begin < end:
                yield block
        else:
            for at in range(begin, end, CHUNK_ROWS):
                upto = min(at + CHUNK_ROWS, end)
                yield _Lines(block.ordinal + at, block.lines[at:upto])
        if block.ordinal + end >= last:
            return


def _read_blocks(
    blocks: Iterator[bytes], shard: Shard, first: int, max_line_bytes: int
) -> Iterator[_Lines]:
    """All lines from about `first` on. Blocks wholly before it are counted, not split."""
    ordinal = 0
    for together, num_bytes in _whole_lines(blocks, max_line_bytes):
        if num_bytes:
            yield _Lines(ordinal, [], num_bytes)
            ordinal += 1
            continue
        # A block has at most as many lines as bytes: far before `first` none is split.
        if ordinal + len(together) <= first:
            ordinal += together.count(b"\n") + (not together.endswith(b"\n"))
            continue
        lines = together.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if ordinal + len(lines) > first:
            yield from _apart(ordinal, lines, max_line_bytes, len(together))
        ordinal += len(lines)
    if ordinal != shard.num_lines:
        raise text.changed_file(shard)


def _apart(
    ordinal: int, lines: list[bytes], max_line_bytes: int, num_bytes: int
) -> Iterator[_Lines]:
    """Lines as they are, over-long ones put apart."""
    begin = 0
    if num_bytes > max_line_bytes:
        for at, line in enumerate(lines):
            if len(line) <= max_line_bytes:
                continue
            if begin < at:
                yield _Lines(ordinal + begin, lines[begin:at])
            yield _Lines(ordinal + at, [], len(line))
            begin = at + 1
    if begin < len(lines):
        yield _Lines(ordinal + begin, lines[begin:] if begin else lines)


def _whole_lines(blocks: Iterator[bytes], max_line_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Text that ends with a line, or (empty, length) for one line too long to be kept."""
    pieces: list[bytes] = []
    held = 0
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if not cut:
            pieces.append(block)
            held += len(block)
            if held > max_line_bytes:
                pieces.clear()
            continue
        begin = 0
        if held > max_line_bytes:
            begin = block.find(b"\n") + 1
            yield b"", held + begin - 1
            pieces.clear()
        lines = b"".join((*pieces, block[begin:cut]))
        if lines:
            yield lines, 0
        pieces = [block[cut:]]
        held = len(block) - cut
    if held > max_line_bytes:
        yield b"", held
    elif held:
        yield b"".join(pieces), 0
