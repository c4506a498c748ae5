"""Texts that are too long to embed: parts that fit, in order, that lose nothing and cut no character."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import ConfigError
from rowmill.measure.long_texts import LongTexts
from rowmill.tokens import ByteTokenizer
from rowmill.tokens.hugging_face import open_folder

TINY = open_folder(
    Path(__file__).parent.parent / "golden" / "tiny_tokenizer", "engine.tokenizer"
)
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n<s>é👩"),
    min_size=1,
    max_size=120,
)


@given(TEXTS, st.integers(7, 40), st.integers(0, 3), st.sampled_from(["", "q: "]))
def test_chunks_hold_every_token_in_order(
    text: str, limit: int, overlap: int, prefix: str
) -> None:
    for tokenizer in (TINY, ByteTokenizer()):
        around = tokenizer.around
        room = limit - len(prefix) - len(around[0]) - len(around[1])
        if room <= overlap:
            continue
        rule = LongTexts(tokenizer, limit=limit, policy="chunk", prefix=prefix, overlap=overlap)

        parts = rule.parts(text)

        assert all(len(part.ids) <= limit for part in parts)
        assert 0 == parts[0].start
        assert len(text) == parts[-1].stop
        for one, other in itertools.pairwise(parts):
            assert one.start < other.start <= one.stop < other.stop or (
                room < 8  # a character of four bytes may have no room at all
            )
        whole = tokenizer.spans(text).ids.tolist()
        own = [part.ids[limit - room :][: len(part.ids) - limit + room] for part in parts]
        if not overlap:
            assert whole == np.concatenate(own).tolist()


def test_chunk_ends_where_a_word_does() -> None:
    rule = LongTexts(ByteTokenizer(), limit=20, policy="chunk", prefix="", overlap=0)
    text = "these are words that stand apart"

    parts = [text[part.start : part.stop] for part in rule.parts(text)]

    assert ["these are words that", " stand apart"] == parts


@pytest.mark.parametrize(
    ("policy", "expected"), [("truncate_right", "abcé"), ("truncate_left", "éxyz")]
)
def test_cut_text_is_as_long_as_fits_and_ends_with_a_whole_character(
    policy: str, expected: str
) -> None:
    text = "abcé" + "ééé" + "éxyz"
    rule = LongTexts(ByteTokenizer(), limit=6, policy=policy, prefix="", overlap=0)

    (part,) = rule.parts(text)

    assert expected == text[part.start : part.stop]
    assert expected.encode() == bytes(part.ids.tolist())


def test_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave 0 of 8 tokens"):
        LongTexts(ByteTokenizer(), limit=8, policy="chunk", prefix="12345678", overlap=0)
