"""A tokenizer.json -> the most bytes of text that one of its tokens stands for.

Promises: a bound that holds for every text, or none: what can drop, squeeze or fuse text has none.
Knows nothing of: limits.
Why: a token costs the library 100 bytes while it encodes. A prompt of 10 MB that cannot fit should not take 1 GB
to be told so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_BOUND = 0
_NFC_SHRINKS = 4
"""Composed text has a third of the bytes at the least (Hangul); one more for safety."""


def longest_token(description: Mapping[str, Any]) -> int:
    """Most bytes of a token of a byte-level BPE; `NO_BOUND` for all other kinds."""
    model = description.get("model") or {}
    shrinks = _shrinking(description.get("normalizer"))
    if model.get("type") != "BPE" or not shrinks:
        return NO_BOUND
    if not _is_byte_level(description.get("pre_tokenizer")):
        return NO_BOUND
    added = description.get("added_tokens") or []
    if any(token.get("lstrip") or token.get("rstrip") for token in added):
        return NO_BOUND
    vocabulary = model.get("vocab") or {}
    if not vocabulary.keys() >= _alphabet():
        return NO_BOUND  # bytes without a token of their own would vanish
    longest = max(map(len, vocabulary))  # each byte is one letter there
    longest = max([longest, *(len(str(token["content"]).encode()) for token in added)])
    return longest * shrinks


def _shrinking(normalizer: Any) -> int:
    """How many times shorter a text may become before it is split; 0: any number."""
    if normalizer is None:
        return 1
    return _NFC_SHRINKS if normalizer.get("type") == "NFC" else 0


def _is_byte_level(part: Any) -> bool:
    """Whether every byte of a text comes through, as a letter of its own."""
    parts = _flat(part)
    kinds = [part.get("type") for part in parts]
    drops = any(part.get("behavior") == "Removed" for part in parts)
    return "ByteLevel" in kinds and set(kinds) <= {"ByteLevel", "Split", "Digits"} and not drops


def _flat(part: Any) -> list[dict[str, Any]]:
    if not isinstance(part, dict):
        return []
    if part.get("type") != "Sequence":
        return [part]
    return [leaf for child in part.get("pretokenizers", ()) for leaf in _flat(child)]


def _alphabet() -> set[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return set(ByteLevel.alphabet())
