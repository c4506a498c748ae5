"""Answers decoded in one go are what stepping through them, one token after the other, gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.decoders import DecodeStream

from rowmill.tokens.answers import AnswerTexts

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = [
    "\u2581the",
    "\u2581cat",
    "s",
    "\u2581",
    *(f"<0x{number:02X}>" for number in range(256)),
]


def byte_level() -> Tokenizer:
    library = Tokenizer(models.BPE({text: i for i, text in enumerate(BYTES)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<end>", special=True)])
    return library


def sentence_pieces() -> Tokenizer:
    """As Llama 2 decodes: a space is left out at the start of a text, bytes are joined."""
    vocabulary = {text: i for i, text in enumerate([*WORDS, "a", "\u2581a"])}
    library = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens([AddedToken("</s>", special=True)])
    return library


def number_of(library: Tokenizer, text: str) -> int:
    number = library.token_to_id(text)
    assert number is not None
    return number


def stepped(library: Tokenizer, prompt: list[int], answer: list[int]) -> str:
    """What an engine says that decodes token by token behind a prompt."""
    stream = DecodeStream(ids=prompt, skip_special_tokens=True)
    return "".join(stream.step(library, number) or "" for number in answer)


@given(st.lists(st.text(max_size=12).map(lambda text: text.encode()), min_size=1), st.data())
@settings(max_examples=60)
def test_cut_bytes_end_a_text_early(texts: list[bytes], data: st.DataObject) -> None:
    library = byte_level()
    answers = []
    for text in texts:
        ids = library.encode(text.decode()).ids
        answers.append(ids[: data.draw(st.integers(0, len(ids)))])

    assert [stepped(library, [40], ids) for ids in answers] == AnswerTexts(library).texts(
        answers
    )


@given(st.lists(st.integers(0, 255), max_size=12))
@settings(max_examples=200)
def test_bytes_that_are_no_text_are_stepped_alike(ids: list[int]) -> None:
    library = byte_level()

    assert [stepped(library, [40], ids)] == AnswerTexts(library).texts([ids])


def test_control_tokens_are_left_out() -> None:
    library = byte_level()
    end = number_of(library, "<end>")
    ids = library.encode("ab").ids

    assert ["ab", "", ""] == AnswerTexts(library).texts([[*ids, end], [end], []])


@pytest.mark.parametrize("answer", [[0, 1, 2], [2, 0], [3, 3, 1], []])
def test_space_that_begins_an_answer_stays(answer: list[int]) -> None:
    library = sentence_pieces()

    assert [stepped(library, [0], answer)] == AnswerTexts(library).texts([answer])


def test_first_answer_begins_with_its_space() -> None:
    assert [" the cat", "s the"] == AnswerTexts(sentence_pieces()).texts([[0, 1], [2, 0]])


def test_character_of_several_byte_tokens_is_whole_or_not_there() -> None:
    library = sentence_pieces()
    ids = [number_of(library, f"<0x{byte:02X}>") for byte in "\u00e9".encode()]

    assert [" the\u00e9", " the"] == AnswerTexts(library).texts([[0, *ids], [0, ids[0]]])
