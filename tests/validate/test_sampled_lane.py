"""Rows with sampling of their own: the fast lane reads them as the long way does, or not at all."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import RowError
from rowmill.rows import Request, Row
from rowmill.validate import Recipe
from tests.validate.rows_of import recipe

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "prompt": st.sampled_from(["hello", "", 'say "max_tokens": 3', None, 7]),
    "id": st.sampled_from(["a", "", 1, None, [1], "é"]),
    "max_tokens": st.sampled_from([1, 16, -1, None, "x", 2.5]),
    "temperature": st.sampled_from([0, 0.5, -1, None]),
    "stop": st.sampled_from(["x", ["a", "b"], None, 3]),
    "note": st.sampled_from(["carried", None, {"max_tokens": 1}]),
    "rowmill_text": st.just("clash"),
    "tools": st.just(None),
}
ROWS = st.lists(
    st.lists(st.sampled_from(list(VALUES)), unique=True, max_size=6).flatmap(
        lambda names: st.fixed_dictionaries({name: VALUES[name] for name in names})
    ),
    max_size=12,
)


def read(by: Recipe, line: bytes) -> Request | str:
    try:
        return by.request(Row(1, line))
    except RowError as error:
        return error.sentence()


@given(ROWS, st.booleans())
def test_rows_are_read_alike_whatever_was_learnt_before(
    rows: list[dict[str, Any]], doubled: bool
) -> None:
    learning = recipe()
    for row in rows:
        line = json.dumps(row).encode()
        if doubled and "max_tokens" in row:
            line = line[:-1] + b', "max_tokens": 5}'
        fresh = recipe()

        assert read(learning, line) == read(fresh, line)


def test_rows_like_one_before_take_the_fast_lane() -> None:
    by = recipe()
    first = Row(1, b'{"id": 1, "prompt": "x", "max_tokens": 4, "note": 1}')
    by.request(first)
    lane = by.request._sampled_lane  # type: ignore[attr-defined]

    found = lane.read(Row(2, b'{"id": 2, "prompt": "y", "max_tokens": 9, "note": 2}'))
    assert found is not None
    assert (found[0], found[1], found[2].max_tokens) == ("y", b"2", 9)
    assert lane.read(Row(3, b'{"id": 2, "prompt": "y", "max_tokens": -9}')) is None
    twice = b'{"id": 2, "prompt": "y", "max_tokens": 9, "max_tokens": 9}'
    assert lane.read(Row(4, twice)) is None
