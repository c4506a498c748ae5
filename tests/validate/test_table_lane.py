"""Rows of tables become what their JSON lines would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import RowError
from rowmill.pipeline import each
from rowmill.read.badline import BadLine
from rowmill.read.table import Table, rows_of
from rowmill.rows import AnyRow, Request, Row, Shard
from rowmill.validate import Recipe
from tests.validate.rows_of import recipe

SHARD = Shard(0, "/t.parquet", "t.parquet", 0, 9, 1, 9, "parquet")
CASES = (
    {"prompt": "{a}|{b}", "raw": True},
    {"prompt": "{a}", "raw": False},
    {"prompt": "no column", "raw": True},
    {"raw": True},
)
Columns = dict[str, list[Any]]


def rows_of_columns(columns: Columns, first: int = 0) -> list[AnyRow | BadLine]:
    batch = pa.RecordBatch.from_pydict(columns)
    return rows_of(SHARD, Table(np.arange(first, first + batch.num_rows), batch))


def fates_of(rows: list[AnyRow | BadLine], by: Recipe) -> dict[int, Any]:
    """Id, prompt and its pieces of each row by its key, or its sentence."""
    found: dict[int, Any] = {}

    def reject(key: int, error: RowError) -> None:
        found[key] = f"{error.kind}: {error}"

    for made in each(rows, by, reject):
        found[made.key] = made.id, made.text, made.messages, list(made.data_spans)
    return found


def lines_of(rows: list[AnyRow | BadLine]) -> list[AnyRow | BadLine]:
    return [Row(row.key, row.line) for row in rows if not isinstance(row, BadLine)]


TEXTS = st.sampled_from(["x", "", "\u00e9 {a}", None])
COLUMN = st.one_of(
    *(
        st.lists(values, min_size=3, max_size=3)
        for values in (
            TEXTS,
            st.just("x"),
            st.sampled_from([7, -1, 2**63 - 1]),
            st.sampled_from([7, None]),
            st.booleans(),
            st.floats(-1, 1),
        )
    )
)
TABLES = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "id", "custom_id", "prompt", "note", "sampling"]),
        COLUMN,
        min_size=1,
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("job", CASES)
@given(tables=TABLES)
def test_a_row_of_a_table_is_what_its_json_line_is(
    job: dict[str, Any], tables: list[Columns]
) -> None:
    rows = [
        row
        for number, columns in enumerate(tables)
        for row in rows_of_columns(columns, 3 * number)
    ]

    assert fates_of(rows, recipe(**job)) == fates_of(lines_of(rows), recipe(**job))


def plain(num_rows: int) -> Columns:
    return {"id": list(range(num_rows)), "a": ["x"] * num_rows, "b": list(range(num_rows))}


def requests_of(rows: list[AnyRow | BadLine]) -> list[Request] | None:
    return recipe(prompt="{a}{b}", raw=True).requests(rows)  # type: ignore[arg-type]


def test_rows_that_are_all_plain_become_requests_at_once() -> None:
    rows = rows_of_columns(plain(3)) + rows_of_columns(plain(2), 3)

    found = requests_of(rows[1:])

    assert found is not None
    assert [(one.key, one.id, one.text) for one in found] == [
        (1, b"1", "x1"),
        (2, b"2", "x2"),
        (3, b"0", "x0"),
        (4, b"1", "x1"),
    ]


@pytest.mark.parametrize(
    "odd", [{"a": [None]}, {"a": [""], "b": [""]}, {"id": [1.5]}, {"b": []}]
)
def test_one_row_that_needs_thought_is_enough_to_take_all_one_by_one(odd: Columns) -> None:
    columns = {name: found for name, found in (plain(1) | odd).items() if found}

    assert requests_of(rows_of_columns(plain(3)) + rows_of_columns(columns, 3)) is None
    assert requests_of([*rows_of_columns(plain(3)), BadLine(9, "bad")]) is None
