"""What is mended in one line, and what is left alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.mend.lines import is_cut, is_plain, is_row, mend_line
from rowmill.mend.mends import Mends
from tests.strategies import TEXTS


def mended(line: bytes) -> tuple[bytes | None, Mends]:
    mends = Mends()
    return mend_line(line, mends), mends


GOOD = [
    b'{"a": 1}',
    b'  {"a":\t1}  ',
    b'{"a": "NaN and Infinity"}',
    rb'{"a": "\u0000 \t \\u0000", "n": [1e999, -0.0]}',
    '{"a": "\u2028 \x7f \ufeff \U0001f600"}'.encode(),
    rb'{"a": "\ud800"}',
    b'{"a": 1, "a": 2}',
]


@pytest.mark.parametrize("line", GOOD)
def test_a_line_that_can_be_read_stays_as_it_is(line: bytes) -> None:
    assert is_row(line)
    assert mended(line) == (line, Mends())


@pytest.mark.parametrize(
    ("line", "new", "mends"),
    [
        (b'{"a": 1}\r', b'{"a": 1}', Mends(line_ends=1)),
        (b'{"a": 1}\r\r', b'{"a": 1}', Mends(line_ends=1)),
        (b'\xef\xbb\xbf{"a": 1}', b'{"a": 1}', Mends(boms=1)),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}', b'{"a": 1}', Mends(boms=2)),
        (b"", None, Mends(blank_lines=1)),
        (b" \t\r", None, Mends(blank_lines=1)),
        (b"\xef\xbb\xbf \r", None, Mends(boms=1, blank_lines=1)),
        (b'{"a": "x\0y"}', rb'{"a": "x\u0000y"}', Mends(characters=1)),
        (b'{"a\t":\t"\x1b\r"}', b'{"a\\t":\t"\\u001b\\r"}', Mends(characters=3)),
        (b'{"a": NaN}', b'{"a": null}', Mends(nulls=1)),
        (
            b'{"a":[-Infinity,Infinity,"NaN"]}',
            b'{"a":[null,null,"NaN"]}',
            Mends(nulls=2),
        ),
        (
            b'{"a": NaN, "b": "NaN\t\\"NaN"}\r',
            b'{"a": null, "b": "NaN\\t\\"NaN"}',
            Mends(nulls=1, characters=1, line_ends=1),
        ),
    ],
)
def test_a_fault_with_one_cure_is_mended_and_counted(
    line: bytes, new: bytes | None, mends: Mends
) -> None:
    assert mended(line) == (new, mends)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": nan}',
        b'{"a": -NaN}',
        b'{"a": +Infinity}',
        b'{"a": NaN1}',
        b'{"a": NaN} trailing',
        b'{NaN: "a"}',
        b'{"a": NaN, "b": }',
        b'{"a": "\\\t"}',
        b'{"a": "x\ty}',
        b'{"a"\0: 1}',
        b'{"a": 1}\x0b',
        b"not json\t",
        b"[NaN]",
        b"{'a': 'x'}",
        b'{"a": 1}\r{"a": 2}',
    ],
)
def test_a_line_that_could_not_be_read_even_then_is_left(line: bytes) -> None:
    assert mended(line) == (line, Mends())


@pytest.mark.parametrize("text", [b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80"])
def test_bytes_that_are_no_utf8_are_not_guessed(text: bytes) -> None:
    line = b'{"a": "%b\t", "b": NaN}' % text

    assert mended(line + b"\r") == (line, Mends(line_ends=1, not_utf8=1))


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.floats(), st.lists(TEXTS)), max_size=4))
def test_what_strings_say_stays_the_same(row: dict[str, object]) -> None:
    raw = json.dumps(row, ensure_ascii=False)
    for escape, code in ((rf"\u{code:04x}", code) for code in range(32) if code != 10):
        raw = raw.replace(escape, chr(code))
    line, _ = mended(raw.encode())

    assert line is not None
    assert is_row(line)
    nothing = json.loads(json.dumps(row), parse_constant=lambda _: None)
    assert json.loads(line) == nothing
    assert mended(line) == (line, Mends())


@given(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b"")))
def test_a_mended_line_has_nothing_to_mend(line: bytes) -> None:
    once, _ = mended(line)

    if once is not None:
        again, mends = mended(once)
        assert again == once
        assert mends == Mends(not_utf8=mends.not_utf8)


CUTS = [b'{"a": "x', b'{"a": "x\\', b'{"a"', b"{", b'{"a": tru', b'{"a": [1, {"b": 2}', b"\0\0"]
WHOLE = [b"not json", b'{"a": 1} x', b"{'a': 1}", b'{"a": 1,}', b'{"a": "\xe9"}', b"}", b"42"]


@pytest.mark.parametrize("line", CUTS + WHOLE)
def test_a_cut_line_ends_before_its_brackets_do(line: bytes) -> None:
    assert is_cut(line) == (line in CUTS)


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.lists(TEXTS)), min_size=1), st.data())
def test_every_beginning_of_a_row_is_cut(row: dict[str, object], draw: st.DataObject) -> None:
    line = json.dumps(row, ensure_ascii=False).encode()
    cut = line[: draw.draw(st.integers(1, len(line) - 1))]

    assert is_cut(cut)
    assert not is_cut(line)


@given(st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line), min_size=1))
def test_a_plain_text_has_no_line_to_mend(lines: list[bytes]) -> None:
    text = b"\n".join([*lines, b""])

    if is_plain(text):
        assert [mended(line) for line in lines] == [(line, Mends()) for line in lines]


@pytest.mark.parametrize("line", GOOD[:1])
def test_good_lines_are_plain(line: bytes) -> None:
    assert is_plain(b"%b\n%b\n" % (line, line))
