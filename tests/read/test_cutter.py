"""Where lines end, whatever blocks the text comes in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowmill.read.cutter import LineCutter

texts = st.text("a\n\r", max_size=60).map(str.encode)


@given(texts, st.lists(st.integers(0, 20), max_size=20))
def test_lines_end_behind_line_feeds_in_any_blocks(text: bytes, sizes: list[int]) -> None:
    cutter = LineCutter()
    at = 0
    for size in (*sizes, len(text)):
        told = cutter.feed(memoryview(text[at : at + size]))
        at = min(at + size, len(text))
        assert told == (text[:at].rfind(b"\n") + 1, text[:at].count(b"\n"))

    rest = bool(text) and not text.endswith(b"\n")
    assert cutter.finish() == (len(text), text.count(b"\n") + rest)


def test_the_last_line_feed_is_found_far_from_the_end() -> None:
    cutter = LineCutter()

    assert cutter.feed(memoryview(b"a\n" + b"x" * 1_000_000)) == (2, 1)
    assert cutter.feed(memoryview(b"x" * 1_000_000)) == (2, 1)
    assert cutter.finish() == (2_000_002, 2)
