"""tokenizer.json -> words that are one token each, so that a text has exactly as many tokens as words.

Promises: words joined by single spaces encode to one token a word, plus `extra` of the model's own around them.
Knows nothing of: workloads.
Memory: the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rowmill import errors

MARKS = ("\u0120", "\u2581")
"""How a vocabulary writes the space before a word: byte-level ones, and SentencePiece."""
MIN_WORDS = 64


class Words:
    """One-token words of a vocabulary, in alphabetical order."""

    def __init__(self, folder: str | Path) -> None:
        """Find them.

        Raises:
            ConfigError: there is no tokenizer.json, or too few such words are in it.
        """
        from tokenizers import Tokenizer

        path = Path(folder).expanduser() / "tokenizer.json"
        if not path.is_file():
            reason = f"`{path}` does not exist; name a folder with the model's tokenizer.json"
            raise errors.ConfigError(reason=reason)
        self._library = Tokenizer.from_file(str(path))
        self.extra = len(self._library.encode("").ids)
        """Tokens that the model puts around every text."""
        known = {
            entry[1:]
            for entry in self._library.get_vocab()
            if entry.startswith(MARKS) and _is_plain(entry[1:])
        }
        self.words = [
            word
            for word, count in self._counted(sorted(known))
            if count == 2  # at the start of a text and behind a space
        ]
        if len(self.words) < MIN_WORDS:
            reason = (
                f"`{path}` holds {len(self.words)} plain lowercase words of one token, expected"
                f" {MIN_WORDS} or more; benchmarks need a tokenizer of whole words"
            )
            raise errors.ConfigError(reason=reason)

    def check(self, texts: Sequence[str], num_tokens: Sequence[int]) -> None:
        """See that texts have as many tokens as they should.

        Raises:
            ConfigError: one has not.
        """
        found = [len(one.ids) for one in self._library.encode_batch(list(texts))]
        for count, wanted in zip(found, num_tokens, strict=True):
            if count != wanted:
                reason = (
                    f"a text of one-token words has {count} tokens, expected {wanted}: this tokenizer"
                    " joins words; benchmarks cannot be made with it"
                )
                raise errors.ConfigError(reason=reason)

    def _counted(self, words: list[str]) -> list[tuple[str, int]]:
        found = self._library.encode_batch([f"{word} {word}" for word in words])
        return [
            (word, len(one.ids) - self.extra) for word, one in zip(words, found, strict=True)
        ]


def _is_plain(word: str) -> bool:
    return len(word) > 1 and word.isascii() and word.isalpha() and word.islower()
