"""The bound on the bytes of a token holds for every text, and is only given where there can be one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from rowmill.tokens.hugging_face import JsonTokenizer
from rowmill.tokens.longest import NO_BOUND, longest_token
from tests.cases.command import TINY

TRAINED_ON = ["lorem ipsum dolor sit amet " * 20, "한국어 é ﬁ " * 20, "      " * 40]


def byte_level(normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINED_ON, trainer)
    return tokenizer


PLAIN = byte_level().to_str()
COMPOSING = byte_level(normalizers.NFC()).to_str()
TINY_TEXT = (TINY / "tokenizer.json").read_text()
PIECES = ["lorem ipsum", "dolor", "   ", "<|end|>", "<|im_start|>", "한국어", "😀", "\x00"]
PIECES += ["e\u0301", "\u1112\u1161\u11ab"]


@pytest.mark.parametrize("description", [PLAIN, COMPOSING, TINY_TEXT])
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=20))
def test_no_text_has_fewer_tokens_than_its_bytes_allow(
    description: str, parts: list[str]
) -> None:
    tokenizer = JsonTokenizer(description, named_tokens={})
    text = "".join(parts)

    ids, _ = tokenizer.encode_batch([text], add_special=False)

    assert len(text.encode()) <= tokenizer.longest_token * len(ids)


def test_the_bound_is_the_longest_entry() -> None:
    assert longest_token(json.loads(PLAIN)) == max(
        map(len, json.loads(PLAIN)["model"]["vocab"])
    )
    assert longest_token(json.loads(TINY_TEXT)) == len("<|im_start|>")


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": None},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Split", "behavior": "Removed"},
                    {"type": "ByteLevel"},
                ],
            }
        },
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}},
        {"added_tokens": [{"content": "<m>", "lstrip": True}]},
    ],
)
def test_tokenizers_that_can_lose_text_have_no_bound(changes: dict[str, Any]) -> None:
    assert longest_token({**json.loads(PLAIN), **changes}) == NO_BOUND
