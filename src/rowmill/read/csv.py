"""CSV file -> tables: the records of a slice as columns of text; what must be known of the file first.

Promises: every record of the asked range that is not blank comes once, in order, as a row or as a bad one;
every value is the text of its field, nothing stripped, no type and no null guessed; a record's ordinal is its
offset in the shard, blank ones counted.
Knows nothing of: the job beyond `[read]`, what columns mean.
Memory: one block (1 MiB) as text and as columns, or the longest record up to `max_record_bytes`.
Time: about 1.5 ms a MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rowmill.read.csv_batch import BatchReader, Records, Rows
from rowmill.read.csv_cut import RecordCutter, record_ends
from rowmill.read.csv_layout import HEADER_BYTES, read_layout
from rowmill.read.table import Table, Wants
from rowmill.read.text import blocks, changed_file
from rowmill.rows import CsvLayout, Shard

__all__ = ["HEADER_BYTES", "MAX_RECORD_BYTES", "RecordCutter", "read_layout", "tables"]

MAX_RECORD_BYTES = 64 << 20
BLOCK_BYTES = 1 << 20
TABLE_ROWS = 10_000


class _Piece(NamedTuple):
    """Neighbouring records of a shard."""

    ordinal: int
    """Of the first one."""
    records: Records
    long_bytes: int = 0
    """Over 0: this is one record, not kept, and so long."""


def tables(
    shard: Shard,
    *,
    first: int = 0,
    stop: int | None = None,
    wants: Wants | None = None,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Iterator[Table]:
    """The records `first` to `stop` of a shard as tables of at most `TABLE_ROWS`, of the columns that are wanted.

    Records before `first` are counted, not parsed.

    Raises: StorageError where the file cannot be read, or changed since it was counted.
    """
    layout = _layout_of(shard)
    first = max(first, 0)
    last = shard.num_lines if stop is None else min(stop, shard.num_lines)
    if first >= last:
        return
    columns = [at for at, name in enumerate(layout.columns) if wants is None or wants(name)]
    reader = BatchReader(layout, columns, max_record_bytes)
    for whole in _pieces(shard, layout, last, max_record_bytes):
        piece = _within(whole, first, last, layout)
        if piece is None:
            continue
        if piece.long_bytes:
            yield from _sliced(piece.ordinal, reader.not_kept(piece.long_bytes))
            continue
        for rows in reader.rows(piece.records):
            yield from _sliced(piece.ordinal, rows)


def _layout_of(shard: Shard) -> CsvLayout:
    assert shard.csv is not None, "a shard of CSV is cut with its layout"
    return shard.csv


def _sliced(ordinal: int, rows: Rows) -> Iterator[Table]:
    ordinals = rows.offsets + ordinal
    bad = sorted(rows.bad.items())
    for at in range(0, len(ordinals), TABLE_ROWS):
        stop = at + TABLE_ROWS
        yield Table(
            ordinals=ordinals[at:stop],
            batch=rows.batch.slice(at, TABLE_ROWS),
            bad={index - at: reason for index, reason in bad if at <= index < stop},
        )


def _within(piece: _Piece, first: int, last: int, layout: CsvLayout) -> _Piece | None:
    """The records of a piece that are `first` to `last` of the shard; None where none is."""
    records = piece.records
    begin = max(first - piece.ordinal, 0)
    end = min(last - piece.ordinal, records.num_records)
    if begin >= end:
        return None
    if end - begin == records.num_records:
        return piece
    bounds = np.concatenate((np.zeros(1, np.int64), record_ends(records.text, layout)))
    text = records.text[bounds[begin] : bounds[end]]
    # A record that is left open is a piece of its own, so none of it is cut here.
    return _Piece(piece.ordinal + begin, Records(text, end - begin))


def _pieces(
    shard: Shard, layout: CsvLayout, last: int, max_record_bytes: int
) -> Iterator[_Piece]:
    """The records of a shard up to `last` at least, cut where blocks of the file end."""
    gathering = _Gathering(layout, max_record_bytes)
    for block in blocks(shard, chunk_bytes=BLOCK_BYTES):
        yield from gathering.take(block)
        # Else the rest is read too: it must have as many records as were counted.
        if last <= gathering.count and last < shard.num_lines:
            return
    yield from gathering.finish()
    if gathering.count != shard.num_lines:
        raise changed_file(shard)


class _Gathering:
    """Blocks of text in, pieces of whole records out."""

    def __init__(self, layout: CsvLayout, max_record_bytes: int) -> None:
        self.count = 0
        """Records given so far."""
        self._cutter = RecordCutter(layout)
        self._max_bytes = max_record_bytes
        self._held: list[bytes] = []
        # In the text: where what is held begins, where the next block does.
        self._begin = self._at = 0

    def take(self, block: bytes) -> Iterator[_Piece]:
        """The piece that ends in the block, behind a record too long to be kept if one ends there as well."""
        fed = block
        if self._at - self._begin > self._max_bytes:
            self._held.clear()
            ends = self._cutter.ends(block)
            fed = b""
            if len(ends):
                yield self._long(int(ends[0]))
        end, count = self._cutter.feed(fed)
        begin = max(self._begin - self._at, 0)
        if count > self.count:
            upto = end - self._at
            text = b"".join((*self._held, memoryview(block)[begin:upto]))
            yield self._kept(text, count)
            begin, self._begin, self._held = upto, end, []
        self._held.append(block[begin:])
        self._at += len(block)

    def finish(self) -> Iterator[_Piece]:
        """The last record, where the text does not end with a line end."""
        end, count = self._cutter.finish()
        if count == self.count:
            return
        if end - self._begin > self._max_bytes:
            yield self._long(end)
        else:
            yield self._kept(b"".join(self._held), count, is_open=self._cutter.is_inside)

    def _kept(self, text: bytes, count: int, *, is_open: bool = False) -> _Piece:
        piece = _Piece(self.count, Records(text, count - self.count, is_open=is_open))
        self.count = count
        return piece

    def _long(self, end: int) -> _Piece:
        piece = _Piece(self.count, Records(b"", 1), end - self._begin)
        self._begin = end
        self.count += 1
        return piece
