"""Rows of a table as columns: what readers of CSV, Parquet and Arrow give, and how it becomes rows.

Promises: a row's JSON view is made by the rules of view.py alone, whoever asks for it.
Knows nothing of: files.
Memory: one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.read.badline import BadLine
from rowmill.read.view import ColumnsView
from rowmill.rows import AnyRow, Shard, TableRow, pack_key

if TYPE_CHECKING:
    import pyarrow as pa

Wants = Callable[[str], bool]
"""Whether a column of this name is of use; readers leave others unread where they can."""


class Table(msgspec.Struct):
    """Neighbouring rows of a shard, types as in the file.

    Shapes: `ordinals` R int64, ascending, blank records left out; `batch` R rows.
    """

    ordinals: npt.NDArray[np.int64]
    batch: pa.RecordBatch
    bad: dict[int, str] = {}
    """Index in the batch of a record that is no row whatever it says -> the end of a sentence about it.
    Its fields, as far as they are there, stand in the batch; others are null."""


def rows_of(shard: Shard, table: Table) -> list[AnyRow | BadLine]:
    """The rows of a table under their keys; lines are not made yet."""
    view = ColumnsView(table.batch)
    first_key = pack_key(shard.index, 0)
    keys = (table.ordinals + first_key).tolist()
    # A loop in C: with millions of rows one in Python takes longer than to decode a file.
    rows: list[AnyRow | BadLine] = list(map(TableRow, keys, repeat(view), range(len(keys))))
    for at, reason in table.bad.items():
        rows[at] = BadLine(keys[at], reason)
    return rows


def spans_of(table: Table) -> list[tuple[int, bytes]]:
    """(ordinal, JSON line) of every row, bad ones among them: what JSON Lines results carry."""
    return list(zip(table.ordinals.tolist(), ColumnsView(table.batch).lines(), strict=True))
