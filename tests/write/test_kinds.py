"""JSON values of a column -> one type that holds each exactly, whatever the order of looking."""

from __future__ import annotations

import json
from functools import reduce
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.write.json_columns import columns_of, split_lines, to_batch
from rowmill.write.kinds import NOTHING, Seen, SeenColumns, arrow_field, is_marked, merged, see
from tests.write.drawn import ALIKE, JSON_VALUES, json_rows


def texts_of(values: list[Any]) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def refused(line: bytes) -> dict[str, bytes]:
    pytest.fail(f"{line!r} is read the slow way")


SEEN = st.lists(ALIKE.flatmap(lambda kind: st.lists(kind, max_size=4)), max_size=5).map(
    lambda windows: [see(texts_of(window), rank) for rank, window in enumerate(windows)]
)


@given(seen=SEEN, data=st.data())
def test_shards_may_be_merged_in_any_order_and_grouping(
    seen: list[Seen], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(seen))
    cut = data.draw(st.integers(0, len(seen)))

    def total(some: list[Seen]) -> Seen:
        return reduce(merged, some, NOTHING)

    assert total(seen) == total(shuffled) == merged(total(seen[:cut]), total(seen[cut:]))


@given(values=st.lists(JSON_VALUES, max_size=6), data=st.data())
def test_windows_cut_anywhere_give_the_type_of_the_whole(
    values: list[Any], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    windows = [values[a:b] for a, b in pairwise([0, *cuts, len(values)])]

    apart = reduce(merged, (see(texts_of(w), n) for n, w in enumerate(windows)), NOTHING)
    whole = see(texts_of(values), 0)

    assert arrow_field("c", apart).equals(arrow_field("c", whole), check_metadata=True)


@given(rows=json_rows(), data=st.data())
def test_values_come_back_equal_from_their_column(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    seen = SeenColumns()
    lines = [json.dumps(row).encode() for row in rows]
    for rank, window in enumerate([lines[:cut], lines[cut:]]):
        seen.add(columns_of(split_lines(window, refused)), rank)
    schema = pa.schema(list(seen.fields()))

    batch = to_batch(columns_of(split_lines(lines, refused)), len(lines), schema)

    batch.validate(full=True)
    for field in schema:
        for row, value in zip(rows, batch.column(field.name).to_pylist(), strict=True):
            wanted = row.get(field.name)
            if is_marked(field):
                assert value == (None if wanted is None else json.dumps(wanted))
            else:
                assert value == wanted
                assert isinstance(value, bool) == isinstance(wanted, bool)
    assert set(schema.names) == {name for row in rows for name in row}


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["1", "-9223372036854775808"], pa.int64()),
        (["1", "18446744073709551615"], pa.uint64()),
        (["-1", "18446744073709551615"], None),
        (["18446744073709551616"], None),
        (["1.50", "2"], pa.float64()),
        (["0.5", "9007199254740993"], None),
        (["0.1000000000000000055511151231257827"], None),
        (["1e400"], None),
        (["1e-99999999999999999999"], None),
        (['"\\ud800"'], None),
        (["{}"], None),
        (["null", "null"], pa.string()),
        (["[]", "null"], pa.list_(pa.string())),
        (["[1]", "[2.5]"], pa.list_(pa.float64())),
        (["true", "1"], None),
        (
            ['{"b":1,"a":2}', '{"a":1,"b":null}'],
            pa.struct([("b", pa.int64()), ("a", pa.int64())]),
        ),
        (['{"a":1}', '{"a":1,"b":2}'], None),
        (["[" * 40 + "]" * 40], None),
        (['[{"a":1},{"a":"x"}]'], None),
    ],
)
def test_a_type_is_taken_only_where_it_holds_each_value(
    texts: list[str], type_: pa.DataType | None
) -> None:
    field = arrow_field("c", see([text.encode() for text in texts], 0))

    assert is_marked(field) == (type_ is None)
    assert field.type == (type_ or pa.string())


def test_what_is_seen_survives_the_way_to_another_process() -> None:
    seen = SeenColumns()
    seen.add({"a": [b'[{"x":1,"y":null}]', b"null"], "b": [b"1", b'"t"']}, 7)

    assert msgspec.json.decode(msgspec.json.encode(seen), type=SeenColumns) == seen


def test_columns_stand_in_the_order_in_which_they_came() -> None:
    first, second = SeenColumns(), SeenColumns()
    first.add({"b": [b"1"], "a": [b"1"]}, 1)
    second.add({"c": [b"1"], "a": [b"1"], "b": [b"1"]}, 2)

    second.merge(first)

    assert [field.name for field in second.fields()] == ["b", "a", "c"]
