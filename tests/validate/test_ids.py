from __future__ import annotations

import json

import pytest
from hypothesis import given

from rowmill.rows import Row
from tests.strategies import TEXTS
from tests.validate.rows_of import ask, fates, line, recipe, refusal


def id_of(raw: bytes) -> bytes:
    by = recipe()
    first = ask(raw, by).id
    assert ask(raw, by).id == first  # the fast lane and the long way agree
    assert by.id_of(Row(0, raw)) == first
    return first


@given(TEXTS.filter(bool))
def test_an_id_has_one_spelling(text: str) -> None:
    plain = json.dumps({"id": text, "prompt": "a"}, ensure_ascii=False).encode()
    escaped = "".join(f"\\u{unit:04x}" for unit in _utf16(text))

    spelled = b'{"prompt": "a", "id": "' + escaped.encode() + b'"}'
    assert id_of(plain) == id_of(spelled)
    assert json.loads(id_of(plain)) == text


def _utf16(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [int.from_bytes(raw[i : i + 2]) for i in range(0, len(raw), 2)]


@pytest.mark.parametrize("raw", [b"1", b"-0.0", b"1.50", b"true", b"123456789012345678901"])
def test_scalars_keep_their_digits_as_ids(raw: bytes) -> None:
    assert id_of(b'{"prompt": "a", "id": ' + raw + b"}") == raw


@pytest.mark.parametrize(
    "row", [b'{"prompt": "a"}', b'{"prompt": "a", "id": null}', b'{"prompt": "a", "id": ""}']
)
def test_no_id_is_empty(row: bytes) -> None:
    assert id_of(row) == b""


def test_custom_id_comes_before_id_where_there_is_one() -> None:
    assert id_of(line(prompt="a", custom_id="c", id="i")) == b'"c"'
    assert id_of(line(prompt="a", custom_id=None, id="i")) == b'"i"'


def test_the_job_may_name_the_id_column() -> None:
    job = {"validate": {"id_column": "nr"}}

    assert ask(line(prompt="a", nr=5, id="i"), **job).id == b"5"
    assert ask(line(prompt="p", id="i"), validate={"id_column": "prompt"}).id == b'"p"'


def test_an_unreadable_row_has_no_id() -> None:
    by = recipe()

    assert by.id_of(Row(0, b'{"id": 5')) == b""
    assert by.id_of(Row(0, b'{"id": [5]}')) == b""
    assert by.id_of(Row(0, b'{"id": 5, "x": "\\ud800"}')) == b"5"


def test_case_22_ids_keep_their_types_and_letters() -> None:
    found = fates("22")
    ids = [getattr(fate, "id", None) for fate in found]

    assert ids[4:7] == [b"", b"", b""]
    assert ids[7:9] == [b"1", b'"1"']
    assert ids[13] != ids[14]
    assert "`id` is a list" in str(found[9])
    assert "`id` is an object" in str(found[10])
    assert "`id` is an object" in refusal(line(prompt="a", id={"k": 1}))
