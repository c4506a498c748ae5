"""The comparer sees every kind of difference: a case that passes means something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cases.compare import Record, differences, read_records


def ok(id_: Any, text: str = "t") -> Record:
    return {"id": id_, "rowmill_status": "ok", "rowmill_text": text, "rowmill_error": None}


def failed(id_: Any, error: str) -> Record:
    return {"id": id_, "rowmill_status": "error", "rowmill_text": None, "rowmill_error": error}


WANTED: list[Record] = [
    {"id": 1, "outcome": "ok", "text": ["s", "t"]},
    {"id": "e", "outcome": "error", "contains": ["3012"]},
]
GOOD = [ok(1), failed("e", "3,012 tokens")]


def test_what_is_as_expected_has_no_difference() -> None:
    assert differences(WANTED, GOOD) == []


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (GOOD[:1], ['missing: id "e"']),
        ([*GOOD, ok("x")], ['extra: id "x"']),
        ([*GOOD, ok(1)], ["twice: id 1"]),
        ([ok("1"), GOOD[1]], ["missing: id 1", 'extra: id "1"']),
        ([ok(1, "u"), GOOD[1]], ["id 1: text 'u', expected one of ['s', 't']"]),
        ([failed(1, "no"), GOOD[1]], ["id 1: expected ok, got error 'no'"]),
        ([GOOD[0], ok("e")], ["id \"e\": expected an error, got text 't'"]),
        ([GOOD[0], failed("e", "x")], ["id \"e\": the error does not name '3012': 'x'"]),
        (
            [{**ok(1), "rowmill_status": "error"}, GOOD[1]],
            ["id 1: status 'error' beside error None"],
        ),
    ],
)
def test_each_difference_is_told(records: list[Record], told: list[str]) -> None:
    assert differences(WANTED, records) == told


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": NaN}\n',
        b'{"a": -Infinity}\n',
        b'{"a": 1}',
        b"[1]\n",
        b'{"a": 1}\n\n',
        b'{"a": "\xc3"}\n',
    ],
)
def test_a_file_that_is_not_strict_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(content)

    with pytest.raises(ValueError, match=r".+"):
        read_records(file)
