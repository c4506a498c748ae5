"""What can be read of a bad line is told, its id by the rule of good rows."""

from __future__ import annotations

import json

import pytest

from rowmill.validate.ids import IdColumns, id_names
from rowmill.validate.salvage import Salvage


def salvage(id_column: str = "") -> Salvage:
    return Salvage("rowmill_", IdColumns(id_names(id_column)))


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b'{"id": "a", "prompt": null, "n": 1.50}', b'"id":"a","prompt":null,"n":1.50,'),
        (b'{"id": "a", "prompt": "x", "prompt": "y"}', b'"id":"a",'),
        (b'{"id": "a", "id": "b", "n": [1,  2]}', b'"n":[1,  2],'),
        (b'{"rowmill_text": "x", "n": "caf\\u00e9"}', b'"n":"caf\\u00e9",'),
        (rb'{"k\ud800": 1, "n": "\ud800"}', rb'"k\ud800":1,"n":"\ud800",'),
        (b'{"id": "a", "n": NaN}', b'"id":"a",'),
        (b'{"id": "a", "n": "caf\xe9"}', b'"id":"a",'),
        (b'{"id": "a", "n": "x\0"}', b'"id":"a",'),
        (b'\xef\xbb\xbf{"id": "a", "n": 1}', b'"id":"a",'),
        (b'{"id": "a", "n": ', b""),
        (b'["id", "a"]', b""),
        (b'{"id": 1' + b"[" * 100_000, b""),
        (b"", b""),
    ],
)
def test_of_an_object_all_is_kept_that_stands_once_and_of_other_lines_the_id(
    line: bytes, kept: bytes
) -> None:
    found = salvage().members(line)

    assert found == kept
    assert json.loads(b"{%b}" % found.removesuffix(b",")) is not None


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b'{"id": "a", "x": ', {"region": "007", "dt": None}),
        (
            b'{"id": "a", "x": NaN,"region":"007","dt":null}',
            {"id": "a", "region": "007", "dt": None},
        ),
        (b'{"region": "own", "x": NaN}', {"dt": None}),
        (b"[1]", {"region": "007", "dt": None}),
    ],
)
def test_columns_of_folders_are_kept_too(line: bytes, kept: dict[str, object]) -> None:
    found = salvage().members(line, (("region", "007"), ("dt", None)))

    assert json.loads(b"{%b}" % found.removesuffix(b",")) == kept


@pytest.mark.parametrize(
    ("columns", "id_column", "id"),
    [
        ('"custom_id": "c", "id": "i"', "", b'"c"'),
        ('"custom_id": null, "id": "i"', "", b'"i"'),
        ('"custom_id": "", "id": 1.50', "", b"1.50"),
        ('"id": 123456789012345678901', "", b"123456789012345678901"),
        ('"id": true', "", b"true"),
        ('"id": ["a"]', "", b""),
        ('"id": "\\ud800"', "", b""),
        ('"id": 1e999', "", b""),
        ('"custom_id": "c", "nr": 5', "nr", b"5"),
        ('"custom_id": "c"', "nr", b""),
    ],
)
def test_an_id_is_found_as_in_good_rows(columns: str, id_column: str, id: bytes) -> None:
    good, bad = f"{{{columns}}}", f'{{{columns}, "n": NaN}}'
    found = salvage(id_column)

    assert [found.id(good.encode()), found.id(bad.encode())] == [id, id]


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"custom_id": "a", "custom_id": "b", "x": 1}', b""),
        (b'{"custom_id": "a", "custom_id": "b", "id": 7}', b"7"),
        (b'{"custom_id": "custom_id", "id": 7}', b'"custom_id"'),
    ],
)
def test_an_id_that_stands_twice_is_none(line: bytes, id: bytes) -> None:
    assert salvage().id(line) == id
