"""RecordBatch -> JSON lines: one object a row, by the table "Types of tables" in docs/rules.md.

Promises: the same line for a row whoever asks, alone or with its batch; every line is strict JSON in which
no key stands twice; a value that holds a text which is no UTF-8 is null.
Knows nothing of: files, keys, the job.
Memory: values and lines of one batch, once somebody asked for them. Time: about 0.15 us a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from rowmill.rows import RowColumns
from rowmill.shown.values import apart, shown_bytes

if TYPE_CHECKING:
    import pyarrow as pa

_FEW_LINES = 8
"""So many lines are made one by one, before all are made at once."""

_encode = msgspec.json.Encoder().encode


class ColumnsView(RowColumns):
    """Rows of a batch as JSON, made when somebody asks."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.names: Sequence[str] = batch.schema.names
        self.num_rows = batch.num_rows
        self.mean_bytes = shown_bytes(batch) // max(batch.num_rows, 1)
        self._values: dict[str, list[Any]] = {}
        self._lines: list[bytes] | None = None
        self._num_asked = 0

    def values(self, name: str) -> list[Any]:
        """The values of a column as JSON has them: a string as str, null as None.

        Raises: KeyError where there is no such column.
        """
        if name not in self._values:
            self._values[name], _ = apart(self.batch.column(name))
        return self._values[name]

    def is_binary(self, name: str) -> bool:
        """Whether a column holds bytes: as JSON has them, they are base64."""
        import pyarrow.types as kinds

        kind = self.batch.schema.field(name).type
        tests = (
            kinds.is_binary,
            kinds.is_large_binary,
            kinds.is_binary_view,
            kinds.is_fixed_size_binary,
        )
        return any(test(kind) for test in tests)

    def lines(self) -> list[bytes]:
        """All rows, each as one JSON object without a line feed."""
        if self._lines is None:
            names = self.batch.schema.names
            columns = [self.values(name) for name in names]
            self._lines = _line_maker(tuple(names))(columns, self.batch.num_rows)
        return self._lines

    def line(self, at: int) -> bytes:
        """Row `at` as one JSON object; what `lines` has there."""
        self._num_asked += 1
        if self._lines is None and self._num_asked <= _FEW_LINES:
            row = self.batch.slice(range(self.batch.num_rows)[at], 1)
            columns = [apart(column)[0] for column in row.columns]
            return _line_maker(tuple(row.schema.names))(columns, 1)[0]
        return self.lines()[at]


LineMaker = Callable[[Sequence[list[Any]], int], list[bytes]]


@lru_cache(maxsize=64)
def _line_maker(names: tuple[str, ...]) -> LineMaker:
    """How columns of these names become lines; a Struct is three times as fast as a dict."""
    if not names or len(set(names)) < len(names) or not all(map(_is_plain, names)):
        return lambda columns, num_rows: [
            _encode(dict(zip(names, (column[at] for column in columns), strict=True)))
            for at in range(num_rows)
        ]
    fields = [f"column{at}" for at in range(len(names))]
    struct = msgspec.defstruct(
        "Line", fields, rename=dict(zip(fields, names, strict=True)), gc=False
    )
    return lambda columns, _: [_encode(row) for row in map(struct, *columns)]


def _is_plain(name: str) -> bool:
    """Whether a name may stand in a Struct, which writes it as it is."""
    return name.isprintable() and '"' not in name and "\\" not in name
