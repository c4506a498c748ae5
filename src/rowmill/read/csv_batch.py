"""Records -> batch: the text of whole CSV records as columns of text, by Arrow where it is plain.

Promises: every record that is not blank is a row of the batch; a row's values, and whether it is bad,
do not depend on its neighbours or on the columns that are asked for.
Knows nothing of: files, ordinals in a shard.
Memory: the text, about three times. Time: about 1 ms a MiB; a few times that where a record is odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rowmill.read.csv_cut import Offsets, Truths
from rowmill.read.csv_fields import too_long
from rowmill.read.csv_sort import Sorting
from rowmill.rows import CsvLayout

if TYPE_CHECKING:
    import pyarrow as pa

PART_ROWS = 10_000
"""Where records are odd, so many are made at once: one by one they take a hundred bytes a field."""

_BOM = b"\xef\xbb\xbf"


class Records(NamedTuple):
    """Text of neighbouring records."""

    text: bytes
    num_records: int
    """Blank ones counted."""
    is_open: bool = False
    """Whether the last one ends in quotes that are never closed."""


class Rows(NamedTuple):
    """What records became."""

    offsets: Offsets
    """Of each row's record among the records."""
    batch: pa.RecordBatch
    bad: dict[int, str]
    """Index in the batch -> why the record is no row."""


class BatchReader:
    """Makes batches of the columns asked for."""

    def __init__(
        self, layout: CsvLayout, columns: Sequence[int], max_record_bytes: int
    ) -> None:
        self._layout = layout
        # Without a single column Arrow does not count rows; the one that is read for it is dropped at last.
        self._columns = columns or [0]
        self._is_counting = not columns
        self._max_bytes = max_record_bytes

    def rows(self, records: Records) -> Iterator[Rows]:
        """The rows of records, all at once where they are plain."""
        plain = self._read(records.text) if self._may_be_plain(records) else None
        if plain is not None and plain.num_rows == records.num_records:
            yield self._rows(np.arange(records.num_records), plain, {})
            return
        sorting = Sorting(
            records.text,
            self._layout,
            is_open=records.is_open,
            max_record_bytes=self._max_bytes,
        )
        offsets = np.flatnonzero(~sorting.is_blank)
        good = sorting.is_good[offsets]
        if plain is not None and good.all() and plain.num_rows == len(good):
            yield self._rows(offsets, plain, {})
            return
        for at in range(0, len(offsets), PART_ROWS):
            stop = at + PART_ROWS
            yield self._sorted(sorting, offsets[at:stop], good[at:stop])

    def not_kept(self, num_bytes: int) -> Rows:
        """The row of one record that is too long, all of its values null."""
        reason = too_long(num_bytes, self._max_bytes)
        return self._rows(np.zeros(1, np.int64), self._made([[]]), {0: reason})

    def _rows(self, offsets: Offsets, batch: pa.RecordBatch, bad: dict[int, str]) -> Rows:
        return Rows(offsets, batch.select([]) if self._is_counting else batch, bad)

    def _may_be_plain(self, records: Records) -> bool:
        return (
            not records.is_open
            and len(records.text) <= self._max_bytes
            and b"\0" not in records.text
            and _is_utf8(records.text)
        )

    def _read(self, text: bytes) -> pa.RecordBatch | None:
        """The rows of valid text by Arrow; None where a record has another number of fields."""
        import pyarrow as pa
        from pyarrow import csv

        names = list(self._layout.columns)
        wanted = [names[at] for at in self._columns]
        # It skips a byte order mark, which is none inside a file; an empty line before it is skipped instead.
        source = pa.BufferReader(b"\n" + text if text.startswith(_BOM) else text)
        quote = self._layout.quote
        try:
            table = csv.read_csv(
                source,  # type: ignore[arg-type]
                # One block: at the borders of blocks Arrow loses bytes of a line end in quotes (pyarrow 26).
                csv.ReadOptions(
                    use_threads=False, block_size=len(text) + 64, column_names=names
                ),
                csv.ParseOptions(
                    delimiter=self._layout.delimiter,
                    quote_char=quote or False,
                    double_quote=bool(quote),
                    newlines_in_values=True,
                ),
                csv.ConvertOptions(
                    check_utf8=False,
                    strings_can_be_null=False,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    include_columns=wanted,
                ),
            )
        except pa.ArrowInvalid:
            return None
        return _one_batch(table) if table.num_rows else None

    def _sorted(self, sorting: Sorting, offsets: Offsets, good: Truths) -> Rows:
        """Rows of the records at `offsets`: those that are `good` by Arrow, the others one by one."""
        batch = self._read(b"".join(map(sorting.whole, offsets[good].tolist())))
        if batch is None or batch.num_rows != np.count_nonzero(good):
            # Arrow and we do not agree on what a record is: what it says is not used.
            good = np.zeros_like(good)
            batch = None
        odd = offsets[~good].tolist()
        fields = [sorting.fields(at) for at in odd]
        reasons = map(sorting.why_bad, odd, map(len, fields))
        places = np.flatnonzero(~good).tolist()
        bad = {place: why for place, why in zip(places, reasons, strict=True) if why}
        return self._rows(offsets, _merged(batch, self._made(fields), good), bad)

    def _made(self, records: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
        """Fields as a batch: those over are left out, missing ones and such as are no UTF-8 are null."""
        import pyarrow as pa

        columns = {
            self._layout.columns[at]: pa.array(
                [_text(fields[at]) if at < len(fields) else None for fields in records],
                pa.string(),
            )
            for at in self._columns
        }
        return pa.RecordBatch.from_pydict(columns)


def _is_utf8(text: bytes) -> bool:
    """As Python's decoder finds it, in less than half of its time."""
    import pyarrow as pa

    if text.isascii():
        return True
    bounds = np.array([0, len(text)], np.int64).tobytes()
    array = pa.LargeStringArray.from_buffers(1, pa.py_buffer(bounds), pa.py_buffer(text))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _text(field: bytes) -> str | None:
    try:
        return field.decode()
    except UnicodeDecodeError:
        return None


def _merged(
    good: pa.RecordBatch | None, odd: pa.RecordBatch, is_good: Truths
) -> pa.RecordBatch:
    """Rows of both in their places."""
    import pyarrow as pa

    if good is None:
        return odd
    order = np.empty(len(is_good), np.int64)
    order[is_good] = np.arange(good.num_rows)
    order[~is_good] = good.num_rows + np.arange(odd.num_rows)
    return _one_batch(pa.Table.from_batches([good, odd]).take(order))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
