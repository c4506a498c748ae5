"""Folders that are columns."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.read.partitions import line_adder, partitions_of

VALUES = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.parquet", ()),
        ("region=007/a.parquet", (("region", "007"),)),
        ("x/region=1e3/dt=2024-01-01/a", (("region", "1e3"), ("dt", "2024-01-01"))),
        (
            "region=EU%2FWest/dt=__HIVE_DEFAULT_PARTITION__/a",
            (("region", "EU/West"), ("dt", None)),
        ),
        ("a=1/a=2/x", (("a", "2"),)),
        ("=1/b=/x=y.jsonl", (("b", ""),)),
    ],
)
def test_values_are_text_as_the_folder_has_it(
    path: str, expected: tuple[tuple[str, str | None], ...]
) -> None:
    assert expected == partitions_of(path)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "r\u00e9", 'q"']), VALUES),
    st.dictionaries(
        st.sampled_from(["a", "r\u00e9", 'q"', "z"]), st.none() | st.text(max_size=4)
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_columns_come_behind_those_of_the_row_which_win(
    row: dict[str, object], folders: dict[str, str | None], ascii_only: bool, indent: int | None
) -> None:
    line = json.dumps(row, ensure_ascii=ascii_only, indent=indent).replace("\n", " ").encode()
    added = line_adder(tuple(folders.items()))(line)
    pairs = json.loads(added, object_pairs_hook=list)

    expected = {**row, **{k: v for k, v in folders.items() if k not in row}}
    assert list(expected.items()) == pairs


@given(st.sampled_from([b"", b"[1]", b"1", b'{"a":1', b"null", b'"{"', b"}{"]))
def test_a_line_that_is_no_object_stays_as_it_is(line: bytes) -> None:
    assert line == line_adder((("r", "1"),))(line)
