from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import Unreadable
from rowmill.validate.lines import names, split_columns
from tests.strategies import TEXTS
from tests.validate.rows_of import ask, fates, line, recipe, refusal

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5), st.booleans())
def test_columns_are_the_objects_own(row: dict[str, object], ascii_only: bool) -> None:
    columns = split_columns(json.dumps(row, ensure_ascii=ascii_only).encode())

    assert {name: json.loads(raw) for name, raw in columns.items()} == row


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_a_lone_surrogate_elsewhere_changes_no_other_column(row: dict[str, object]) -> None:
    raw = json.dumps({**row, "odd": 0}, separators=(" , ", " :\t")).encode()
    odd = raw.replace(b'"odd" :\t0', b'"odd" :\t"\\ud800"')
    plain, columns = split_columns(raw), split_columns(odd)

    assert columns.pop("odd") == b'"\\ud800"'
    del plain["odd"]
    assert columns == plain


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4), st.data())
def test_a_cut_line_is_unreadable(row: dict[str, object], data: st.DataObject) -> None:
    raw = json.dumps(row, ensure_ascii=False).encode()
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]

    with pytest.raises(Unreadable):
        split_columns(cut)


def test_a_column_given_twice_is_refused_in_either_lane() -> None:
    said = "unreadable: `prompt` stands twice in the line, expected each column once"
    assert refusal(b'{"prompt": "a", "prompt": "b"}') == said
    assert refusal(b'{"prompt": "a", "x": "\\ud800", "prompt": "b"}') == said


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[1]", "the line is a list"),
        (b'"x"', "the line is a string"),
        (b"null", "the line is null"),
        (b"4e2", "the line is a number"),
        (b"true", "the line is a boolean"),
        (b'{"a": 1} trailing', "text behind the JSON value at byte 9"),
        (b'{"a": 1}{"a": 2}', "text behind the JSON value at byte 8"),
        ('{"é": 1,}'.encode(), "no JSON at byte 9"),
        (b"{'a': 1}", "no JSON at byte 1"),
        (b'{"a": "x', "unfinished last line"),
        (b'{"a": ', "unfinished last line"),
        (b'{"a": 1', "unfinished last line"),
        ('{"a": "ü'.encode()[:-1], "no UTF-8 at byte 7; an unfinished last line"),
        (b'{"a": "\xff"', "no UTF-8 at byte 7"),
        (b'{"a": NaN}', "`NaN` is no JSON value"),
        (b'{"a": [-Infinity]}', "`-Infinity` is no JSON value"),
        (b'{"a": nan}', "`nan` is no JSON value at byte 6"),
        (b'{"a": -inf}', "`-inf` is no JSON value at byte 6"),
        (b'{"a": "x\x01"}', "no JSON at byte 8"),
        (b'{"a": 01}', "no JSON at byte 7"),
        (b'{"a": ' + b"[" * 200_000, "nested too deeply"),
        (b'{"o": "\\ud800", "a": ' + b"[" * 200_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_strict_object_says_why(raw: bytes, said: str) -> None:
    sentence = refusal(raw)

    assert sentence.startswith("unreadable: ")
    assert said in sentence
    assert "\n" not in sentence


def test_a_number_out_of_range_that_is_only_carried_does_no_harm() -> None:
    assert ask(b'{"prompt": "a", "x": 1e999, "y": ' + b"9" * 9999 + b"}").text == "a"
    assert ask(b'{"prompt": "a", "s": "\\udfff", "y": ' + b"9" * 9999 + b"}").text == "a"


def test_half_a_character_in_a_used_column_is_named() -> None:
    assert "invalid: `prompt` holds half a surrogate" in refusal(b'{"prompt": "\\ud800"}')
    by = recipe(prompt="{b}")
    assert "`b` holds half a surrogate" in refusal(b'{"b": "\\ud800"}', by)


def test_bytes_that_are_no_utf8_never_reach_a_request() -> None:
    assert "`prompt` is no UTF-8" in refusal(b'{"prompt": "a\xff"}')


def test_names_from_the_input_are_shown_on_one_line() -> None:
    shown = names({"a\nb": b"1", "\ud800": b"1", "x" * 99: b"1"})

    assert "\n" not in shown
    assert shown.encode()
    assert len(shown) < 200


def test_case_15_each_bad_line_is_one_unreadable_row() -> None:
    kinds = [getattr(fate, "kind", "ok") for fate in fates("15")]

    bad = "unreadable"
    assert kinds == [
        *("ok", bad, bad, bad, bad, "missing_column", bad, bad, bad, bad),
        *("ok", "ok", "ok", bad),
    ]
    assert "`prompt` is missing" in str(fates("15")[5])


def test_case_20_literals_are_named_and_1e999_passes() -> None:
    found = fates("20")

    assert [getattr(fate, "kind", "ok") for fate in found] == [
        *("ok", "unreadable", "unreadable", "unreadable", "unreadable", "ok", "ok", "ok", "ok")
    ]
    for fate, literal in zip(found[1:5], ("NaN", "Infinity", "-Infinity", "nan"), strict=True):
        assert f"`{literal}`" in str(fate)


def test_a_column_named_as_result_columns_is_refused_in_any_spelling() -> None:
    said = "column `rowmill_text` begins as result columns do (`rowmill_`)"
    assert said in refusal(line(prompt="a", rowmill_text=1))
    assert said in refusal(b'{"prompt": "a", "\\u0072owmill_text": 1}')
    assert ask(line(prompt='"rowmill_text"')).text == '"rowmill_text"'
    assert ask(line(prompt="a", rowmill_text=1), output={"prefix": "r_"}).text == "a"
