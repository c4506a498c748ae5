"""Tables become rows and spans under the ordinals they have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowmill.read.badline import BadLine
from rowmill.read.table import Table, rows_of, spans_of
from rowmill.rows import Shard, TableRow, pack_key

SHARD = Shard(3, "/t.parquet", "t.parquet", 0, 9, 1, 9, "parquet")


def table() -> Table:
    """Record 6 is left out, and that of 7 is bad."""
    batch = pa.RecordBatch.from_pydict({"id": [5, 7, 8], "prompt": ["x", None, None]})
    return Table(np.array([5, 7, 8]), batch, {1: "bad as it is"})


def test_rows_have_their_keys_and_bad_ones_a_reason() -> None:
    first, bad, last = rows_of(SHARD, table())

    assert isinstance(first, TableRow)
    assert isinstance(last, TableRow)
    assert BadLine(pack_key(3, 7), "bad as it is") == bad
    assert [pack_key(3, 5), pack_key(3, 8)] == [first.key, last.key]
    assert [b'{"id":5,"prompt":"x"}', b'{"id":8,"prompt":null}'] == [first.line, last.line]


def test_spans_hold_all_columns_of_a_bad_record_too() -> None:
    assert [
        (5, b'{"id":5,"prompt":"x"}'),
        (7, b'{"id":7,"prompt":null}'),
        (8, b'{"id":8,"prompt":null}'),
    ] == spans_of(table())
