"""Batches of one schema -> the bytes of a Parquet, Arrow or CSV file.

Promises: what is written is complete once `finish` returned; row groups are bounded, so memory is.
Knows nothing of: names, places, rows.
Memory: one row group, at most `GROUP_ROWS` rows or about `GROUP_BYTES`, or the largest batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rowmill.write.csv_text import csv_header, csv_records
from rowmill.write.form import Form
from rowmill.write.packed import open_packer
from rowmill.write.sound_texts import with_sound_entries

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 100_000
GROUP_BYTES = 64 * 2**20

Write = Callable[[bytes], None]


class Sink(Protocol):
    """A file in the making."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        ...

    def finish(self) -> None:
        """Write what is left, and the end of the file."""
        ...

    def abandon(self) -> None:
        """Write no more; `finish` must not have been called."""
        ...


def open_sink(form: Form, schema: pa.Schema, write: Write) -> Sink:
    """Begin a file of a table's format; its bytes go to `write`.

    Raises: (all of it) pyarrow.ArrowException for a value that the format does not hold.
    """
    if form.format == "csv":
        return _CsvSink(schema, form, write)
    stream = _Stream(write)
    open_writer = _parquet if form.format == "parquet" else _arrow
    return _Grouped(open_writer(schema, form, stream), stream)


class _CsvSink:
    def __init__(self, schema: pa.Schema, form: Form, write: Write) -> None:
        self._write, self._packer = write, open_packer(form.compression)
        write(self._packer.pack(csv_header(schema)))

    def add(self, batch: pa.RecordBatch) -> None:
        self._write(self._packer.pack(csv_records(batch)))

    def finish(self) -> None:
        self._write(self._packer.finish())

    def abandon(self) -> None:
        pass


class _Grouped:
    """Batches are gathered into row groups."""

    def __init__(self, writer: Any, stream: _Stream) -> None:
        self._writer, self._stream = writer, stream
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        entries = [with_sound_entries(column) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(entries, schema=batch.schema)
        size = batch.get_total_buffer_size() if batch.num_rows else 0
        if self._held and (
            self._bytes + size > GROUP_BYTES or self._rows + batch.num_rows > GROUP_ROWS
        ):
            self._flush()
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += size

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        # A writer that is not closed closes itself when it is thrown away, and writes an end.
        self._stream.mute()
        with contextlib.suppress(Exception):
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._held))
        self._held = []
        self._rows = self._bytes = 0


class _Stream:
    """What pyarrow takes for a file: it goes to `write`, and ends there."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._at = 0
        self.closed = self._is_mute = False

    def mute(self) -> None:
        self._is_mute = True

    def write(self, content: Any) -> int:
        piece = bytes(content)
        if not self._is_mute:
            self._write(piece)
        self._at += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _parquet(schema: pa.Schema, form: Form, stream: _Stream) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        pa.PythonFile(stream, mode="w"),
        schema,
        compression=form.compression,
        use_dictionary=_repeating(schema),
    )


def _repeating(schema: pa.Schema) -> bool | list[str]:
    """Columns worth a dictionary, by their paths: numbers of vectors hardly repeat, and each would be looked up in vain."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    vectors = {
        f"{field.name}.list.element"
        for field in schema
        if pa.types.is_fixed_size_list(field.type)
    }
    if not vectors:
        return True
    empty = pa.BufferOutputStream()
    pq.write_metadata(schema, empty)
    leaves = pq.read_metadata(pa.BufferReader(empty.getvalue())).schema
    paths = [leaves.column(at).path for at in range(len(leaves))]
    return [path for path in paths if path not in vectors]


def _arrow(schema: pa.Schema, form: Form, stream: _Stream) -> Any:
    import pyarrow as pa

    packed = None if form.compression == "none" else form.compression
    options = pa.ipc.IpcWriteOptions(compression=packed)
    return pa.ipc.new_file(pa.PythonFile(stream, mode="w"), schema, options=options)
