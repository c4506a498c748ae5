"""Batches as a file has them -> Tables: cut to size, checked, with the columns of the folders.

Promises: the rows asked for, each once, in order; types and values as they came; no memory is looked into
before it is known to be sound; a row with a text that is no UTF-8 is bad, its neighbours are not.
Knows nothing of: Parquet, Arrow IPC.
Memory: what it is given, and a piece (4 MiB about).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rowmill.errors import BadSource
from rowmill.read.steady import changed_file, unreadable_file
from rowmill.read.table import Table, Wants
from rowmill.rows import Shard
from rowmill.shown.values import apart, reread, shown_bytes, unreadable_type

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 4 << 20
PIECE_ROWS = 8192

Batches = Iterable[tuple[int, "pa.RecordBatch"]]
"""Neighbouring batches, each with the ordinal of its first row; below 0 before the shard."""


class Columns(NamedTuple):
    """What of a file is read, and what its folders add."""

    names: list[str]
    """In the order of the file."""
    is_all: bool
    """Whether these are all columns of the file."""
    added: dict[str, str | None]
    """Column -> value of a folder such as `region=007`; a column of the file comes first."""


def faults() -> tuple[type[Exception], ...]:
    """What pyarrow raises where a file is not what it should be."""
    import pyarrow as pa

    return (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, OverflowError)


def refused(path: str, kind: str, error: Exception) -> BadSource:
    """What is raised at the start for a file that is not what it seems to be."""
    reason = f"`{path}`: cannot be read as {kind} ({told(error)}); copy or write it again"
    return BadSource(reason=reason)


def told(error: Exception) -> str:
    """The first line of what pyarrow said, as the end of a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in line[:200]).rstrip(". ")


def problem_of(schema: pa.Schema) -> str:
    """Why a file with these columns cannot be an input; empty where it can."""
    names = schema.names
    if not names:
        return "has no columns, expected one with the prompt at least; write it again"
    twice = (
        sorted({name for name in names if names.count(name) > 1}) if _has_twice(names) else []
    )
    if twice:
        each = ", ".join(f"`{shown(name)}`" for name in twice)
        return f"has several columns of one name ({each}); rename them"
    for field in schema:
        why = unreadable_type(field.type)
        if why:
            return f"column `{shown(field.name)}` is {why}; write it as another type"
    return ""


def _has_twice(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def shown(name: str) -> str:
    """A name from the input, safe to print on one line."""
    text = name if name.isprintable() else ascii(name)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."


def columns_of(shard: Shard, names: list[str], wants: Wants | None) -> Columns:
    """Which columns of a file are read, and which its folders add."""
    picked = [name for name in names if wants is None or wants(name)]
    added = {
        name: value
        for name, value in shard.partitions
        if name not in names and (wants is None or wants(name))
    }
    return Columns(picked, len(picked) == len(names), added)


def rows_that_fit(
    batch: pa.RecordBatch, max_bytes: int | None = None, max_rows: int | None = None
) -> int:
    """How many rows of a batch make a piece, about. Looks at sizes of buffers alone.

    Args:
        max_bytes: None: of a piece.
        max_rows: None: of a piece.
    """
    num_rows = max(batch.num_rows, 1)
    row_bytes = sum(_row_bytes(column, num_rows) for column in batch.columns)
    fitting = int((max_bytes or PIECE_BYTES) / max(row_bytes, 1))
    return max(1, min(max_rows or PIECE_ROWS, fitting))


def _row_bytes(column: Any, num_rows: int) -> float:
    """A dictionary's values are counted as if each row had its own: so they become JSON."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return float(column.get_total_buffer_size() / num_rows)
    entries = column.dictionary
    return 4 + float(entries.get_total_buffer_size() / max(len(entries), 1))


def empty_batches(num_rows: int) -> Batches:
    """Batches without columns: what is read of a file of which nothing is wanted."""
    import pyarrow as pa

    for at in range(0, num_rows, PIECE_ROWS):
        empty: Any = pa.array([{}] * min(PIECE_ROWS, num_rows - at), pa.struct([]))
        yield at, pa.RecordBatch.from_struct_array(empty)


def tables_of(
    shard: Shard, batches: Batches, first: int, stop: int, added: dict[str, str | None]
) -> Iterator[Table]:
    """The rows `first` to `stop` of a shard.

    Raises: StorageError where rows are missing or memory is unsound.
    """
    due = first
    for at, batch in batches:
        if at > due:
            break
        end = min(stop - at, batch.num_rows)
        step = rows_that_fit(batch)
        for begin in range(due - at, end, step):
            piece = batch.slice(begin, min(step, end - begin))
            yield from _checked(shard, piece, at + begin, added)
        due = max(due, at + end)
        if due >= stop:
            return
    raise changed_file(shard)


def _checked(
    shard: Shard, piece: pa.RecordBatch, ordinal: int, added: dict[str, str | None]
) -> Iterator[Table]:
    bad = _bad_rows(shard, piece)
    for begin, part in _halves(piece, 0):
        stop = begin + part.num_rows
        yield Table(
            np.arange(ordinal + begin, ordinal + stop, dtype=np.int64),
            _with_added(part, added) if added else part,
            {at - begin: reason for at, reason in bad.items() if begin <= at < stop},
        )


def _halves(piece: pa.RecordBatch, at: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Pieces that are far too large because their rows differ, cut again."""
    if piece.num_rows <= 1 or shown_bytes(piece) <= 2 * PIECE_BYTES:
        yield at, piece
        return
    half = piece.num_rows // 2
    yield from _halves(piece.slice(0, half), at)
    yield from _halves(piece.slice(half), at + half)


def _bad_rows(shard: Shard, piece: pa.RecordBatch) -> dict[int, str]:
    """Rows with a text that is no UTF-8; an error where a column's memory makes no sense."""
    import pyarrow as pa

    bad: dict[int, str] = {}
    for name, column in zip(piece.schema.names, piece.columns, strict=True):
        try:
            column.validate(full=True)
            continue
        except pa.ArrowInvalid:
            # Texts, or values such as a time behind midnight, are no reason to look away.
            if why := _unsound(column):
                raise unreadable_file(shard, f"column `{shown(name)}`: {why}") from None
        for at in apart(column)[1]:
            bad.setdefault(at, _not_utf8(name))
    return bad


def _not_utf8(name: str) -> str:
    return (
        f"not valid UTF-8 in column `{shown(name)}`; write the text as UTF-8,"
        " or the column as binary"
    )


def _unsound(column: Any) -> str:
    """What is wrong with a column whatever its values mean; empty where it can be read."""
    try:
        column.validate()
        reread(column, _as_stored(column.type)).validate(full=True)
    except faults() as error:
        return told(error)
    return ""


def _as_stored(kind: Any) -> Any:
    """A type of the same buffers that takes any value for valid."""
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_string_view(kind):
        return pa.binary_view()
    if types.is_decimal(kind):
        return pa.binary(kind.bit_width // 8)
    if types.is_time(kind) or types.is_date(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return _of_stored(kind)


def _of_stored(kind: Any) -> Any:
    """Nested types, of what is inside."""
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _as_stored(kind.storage_type)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_stored(kind.value_type), kind.ordered)
    if types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _as_stored(kind.value_type))
    fields = [kind.field(at) for at in range(kind.num_fields)]
    inner = [field.with_type(_as_stored(field.type)) for field in fields]
    return _rebuilt(kind, inner) if inner else kind


def _rebuilt(kind: Any, inner: list[Any]) -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_map(kind):
        return pa.map_(inner[0].type.field(0), inner[0].type.field(1))
    if types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    if types.is_struct(kind):
        return pa.struct(inner)
    if types.is_union(kind):
        return pa.union(inner, kind.mode, kind.type_codes)
    lists: dict[str, Any] = {
        "is_list": pa.list_,
        "is_large_list": pa.large_list,
        "is_list_view": pa.list_view,
        "is_large_list_view": pa.large_list_view,
    }
    return next(made for test, made in lists.items() if getattr(types, test)(kind))(inner[0])


def _with_added(piece: pa.RecordBatch, added: dict[str, str | None]) -> pa.RecordBatch:
    import pyarrow as pa

    text = pa.string()
    columns = [pa.repeat(pa.scalar(value, text), piece.num_rows) for value in added.values()]
    schema = piece.schema
    for name in added:
        schema = schema.append(pa.field(name, text))
    return pa.RecordBatch.from_arrays([*piece.columns, *columns], schema=schema)


def rows_within(shard: Shard, first: int, stop: int | None) -> tuple[int, int]:
    """The rows asked for, within those that there are."""
    last = shard.num_lines if stop is None else min(stop, shard.num_lines)
    return max(first, 0), last
