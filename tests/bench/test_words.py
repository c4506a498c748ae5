"""Words of one token."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from rowmill.bench.words import MIN_WORDS, Words
from rowmill.errors import ConfigError
from tests.bench.tokenizers_of import WORDS, word_tokenizer


def test_words_are_those_of_one_token_at_the_start_and_behind_a_space(tmp_path: Path) -> None:
    words = Words(word_tokenizer(tmp_path))

    assert words.words == sorted(WORDS)
    library = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert len(library.encode(" ".join(words.words)).ids) == len(WORDS)


def test_a_token_at_the_start_is_counted_apart(tmp_path: Path) -> None:
    words = Words(word_tokenizer(tmp_path, bos=True))

    assert words.extra == 1
    words.check(["bam ban"], [3])


def test_a_text_of_another_length_is_refused(tmp_path: Path) -> None:
    words = Words(word_tokenizer(tmp_path))

    with pytest.raises(ConfigError, match="has 2 tokens, expected 3"):
        words.check(["bam ban"], [3])


def test_too_few_words_are_refused(tmp_path: Path) -> None:
    folder = word_tokenizer(tmp_path, words=WORDS[:10])

    with pytest.raises(ConfigError, match=f"10 plain lowercase words .* expected {MIN_WORDS}"):
        Words(folder)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        Words(tmp_path)
