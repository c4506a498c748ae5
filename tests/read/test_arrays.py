"""JSON arrays and values over many lines as JSON Lines: the same values, nothing lost, nothing joined."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import BadSource
from rowmill.read import arrays as module
from rowmill.read.arrays import Shape, shape_of, to_lines

JSON = Any

texts = st.text(st.sampled_from('"\\{}[],:\n\r\t a0ä'), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
spaces = st.text(" \t\r\n", max_size=3)
indents = st.sampled_from([None, 0, 2, "\t"])
blocks = st.integers(1, 40)


@pytest.fixture(params=[1, 3, 1 << 18])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", request.param)


def lines_of(text: bytes, *, shape: Shape | None = None, step: int = 7) -> list[bytes]:
    parts = [text[at : at + step] for at in range(0, len(text), step)]
    lines = b"".join(to_lines(parts, shape=shape or shape_of(text), path="in.json"))
    return [line for line in lines.split(b"\n") if line.strip()]


def refusal(text: bytes) -> str:
    with pytest.raises(BadSource) as caught:
        lines_of(text)
    return str(caught.value)


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@pytest.mark.usefixtures("pieces")
@given(st.lists(values, max_size=5), st.lists(spaces, min_size=12), indents, blocks)
def test_each_element_of_an_array_is_a_line(
    elements: list[JSON], between: list[str], indent: int | str | None, step: int
) -> None:
    inner = []
    for before, element, behind in zip(between, elements, between[6:], strict=False):
        inner.append(before + json.dumps(element, indent=indent, ensure_ascii=False) + behind)
    text = (between[-1] + "[" + ",".join(inner) + between[-2] + "]" + between[-3]).encode()

    assert [json.loads(line) for line in lines_of(text, shape="array", step=step)] == elements


@pytest.mark.usefixtures("pieces")
@given(st.lists(objects, max_size=5), st.lists(spaces, min_size=6), indents, blocks)
def test_each_of_many_values_is_a_line(
    elements: list[JSON], between: list[str], indent: int | str | None, step: int
) -> None:
    text = "".join(
        before + json.dumps(element, indent=indent, ensure_ascii=False)
        for before, element in zip(between, elements, strict=False)
    )

    lines = lines_of((text + between[-1]).encode(), shape="values", step=step)
    assert [json.loads(line) for line in lines] == elements


@given(st.lists(objects, min_size=1, max_size=4))
def test_text_on_one_line_is_kept_byte_for_byte(elements: list[JSON]) -> None:
    each = [json.dumps(element, separators=(" ,", ": ")).encode() for element in elements]

    assert lines_of(b"[" + b",".join(each) + b"]") == [b" " + each[0], *each[1:]]


@pytest.mark.usefixtures("pieces")
@given(st.lists(objects, min_size=1, max_size=4), indents, blocks, st.data())
def test_a_cut_array_is_an_error(
    elements: list[JSON], indent: int | str | None, step: int, data: st.DataObject
) -> None:
    text = json.dumps(elements, indent=indent).encode()
    text = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(BadSource, match=r"`in\.json`: .* at byte [\d,]+; mend the file"):
        lines_of(text, shape="array", step=step)


@given(st.lists(objects, min_size=2, max_size=4), indents, st.data())
def test_no_array_with_a_byte_changed_gives_fewer_good_rows_unseen(
    elements: list[JSON], indent: int | str | None, data: st.DataObject
) -> None:
    """What is no JSON array is an error, or has a row that is bad."""
    text = bytearray(json.dumps(elements, indent=indent).encode())
    at = data.draw(st.integers(1, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 1))] = data.draw(
        st.sampled_from([b"", b",", b"]", b"}", b"[", b"{", b'"', b"\\", b"\n", b" ", b"x"])
    )
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        lines = lines_of(bytes(text), shape="array")
    except BadSource:
        assert expected is None
        return

    if expected is None:
        assert not all(map(is_json, lines))
    else:
        assert [json.loads(line) for line in lines] == expected


def test_a_raw_line_feed_in_a_string_leaves_one_bad_row() -> None:
    lines = lines_of(b'[{"a": "b\n{}\n"}, {"a": 2}]')

    assert len(lines) == 2
    assert not is_json(lines[0])
    assert json.loads(lines[1]) == {"a": 2}


def test_tokens_on_two_lines_do_not_grow_together() -> None:
    assert [is_json(line) for line in lines_of(b'[{"a": 1\n2}, {"a": tr\r\nue}]')] == [
        False
    ] * 2


def test_elements_that_are_no_objects_are_lines_as_they_are() -> None:
    text = b'[1, "a,b]", [1, [2]], null , {"a": 1}, nonsense, {"b" 2}]'

    assert [line.strip() for line in lines_of(text)] == [
        b"1",
        b'"a,b]"',
        b"[1, [2]]",
        b"null",
        b'{"a": 1}',
        b"nonsense",
        b'{"b" 2}',
    ]


def test_an_empty_array_has_no_rows() -> None:
    assert lines_of(b" [ \n ] ") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'[{"a": 1}', "the JSON array is cut: the text ends at byte 9"),
        (b'[{"a": 1}] {"b": 2}', "text behind the JSON array at byte 11"),
        (b'[{"a": 1}][{"b": 2}]', "text behind the JSON array at byte 10"),
        (b'[{"a": 1}}', "a `}` closes the JSON array at byte 9"),
        (b"[1,, 2]", "no value before the comma of a JSON array at byte 3"),
        (b"[ , 2]", "no value before the comma of a JSON array at byte 2"),
        (b"[1, \n , 2]", "no value before the comma of a JSON array at byte 6"),
        (b"[1, ]", "no value behind the last comma of a JSON array at byte 4"),
        (b'{"a":\n{"b": 2}', "the text ends inside a JSON value, which begins at byte 0"),
        (b'{"a":\n1}}', "a bracket that closes nothing at byte 8"),
    ],
)
def test_what_is_no_array_is_told_with_its_byte(text: bytes, told: str) -> None:
    assert refusal(text) == f"`in.json`: {told}; mend the file"


def test_text_between_values_is_a_bad_row_of_its_own() -> None:
    text = b'{"a":\n1}\r\nsome text\r\n\r\n  {"b": "x\ny"}, {"c":\n3} 17 "a"\n18'

    assert [line.strip() for line in lines_of(text)] == [
        b'{"a": 1}',
        b"some text",
        b'{"b": "x\ry"}',
        b', {"c": 3}',
        b'17 "a"',
        b"18",
    ]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (b"", "lines"),
        (b'{"a": 1}', "lines"),
        (b'\n{"a": 1}\n{"a": 2}\n', "lines"),
        (b'{"a": \n{"a": 2}\n', "lines"),
        (b'{"a": "cut', "lines"),
        (b"text\n", "lines"),
        (b'{\n "a": 1\n}\n', "values"),
        (b'{"a": 1,\r\n"b": 2}', "values"),
        (b"[]", "array"),
        (b' \n[{"a": 1},\n{"a": 2}]\n', "array"),
        (b'[{"a": 1}]\n \n', "array"),
        (b'[1]\n{"a": 2}\n', "lines"),
        (b"[\n1]\n[2]", "array"),
    ],
)
def test_the_shape_is_told_by_the_first_lines(text: bytes, shape: Shape) -> None:
    assert shape_of(text) == shape
