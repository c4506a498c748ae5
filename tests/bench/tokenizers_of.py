"""A small tokenizer folder for tests of workloads: byte level, some words that are one token."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

WORDS = ["".join(letters) for letters in product("bdfgkl", "aeiou", "mnrst")]


def word_tokenizer(folder: Path, *, words: list[str] = WORDS, bos: bool = False) -> Path:
    """A folder with tokenizer.json."""
    space = "\u0120"
    vocabulary = {text: i for i, text in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    merges: list[tuple[str, str]] = []

    def learn(left: str, right: str) -> None:
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))

    for word in words:
        for i in range(1, len(word)):
            learn(word[:i], word[i])
    for word in words:
        learn(space, word)
    library = Tokenizer(models.BPE(vocabulary, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    if bos:
        library.add_special_tokens(["<s>"])
        library.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", library.token_to_id("<s>"))]
        )
    folder.mkdir(parents=True, exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    return folder
