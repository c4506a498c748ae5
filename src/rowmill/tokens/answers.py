"""Token ids of answers -> their texts, many at once: what an engine that decodes token by token would have said.

Promises: control tokens are left out; a text ends before a character whose bytes are not all there;
an answer is decoded as what follows a prompt, so that the space it begins with stays.
Knows nothing of: rows, engines. The library uses all cores, and lets other threads run.
Memory: one batch.
Source: vllm/v1/engine/detokenizer.py 0.25 to 0.33, which steps tokenizers' DecodeStream; compared with it in a test.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.decoders import DecodeStream

_CUT = "\ufffd"


class AnswerTexts:
    """Decodes answers of one vocabulary."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._anchor: list[int] = []
        decoder = json.loads(library.to_str()).get("decoder")
        if not _is_same_anywhere(decoder):
            # A decoder that treats the first token as the start of a text is shown one before it.
            self._anchor = library.encode("a", add_special_tokens=False).ids
        self._skipped = len(library.decode(self._anchor))

    def texts(self, answers: Sequence[Sequence[int]]) -> list[str]:
        """The text of each answer."""
        anchor = self._anchor
        rows = [anchor + list(ids) for ids in answers] if anchor else list(map(list, answers))
        whole = self._library.decode_batch(rows, skip_special_tokens=True)
        skipped = self._skipped
        return [
            self._until_cut(rows[i])[skipped:] if text.endswith(_CUT) else text[skipped:]
            for i, text in enumerate(whole)
        ]

    def _until_cut(self, ids: Sequence[int]) -> str:
        """The text as far as characters are whole, token by token."""
        stream, text = DecodeStream(skip_special_tokens=True), ""
        for number in ids:
            try:
                text += stream.step(self._library, number) or ""
            except (
                Exception
            ):  # the library raises bare Exception where bytes before turn out as no character
                stream = DecodeStream(skip_special_tokens=True)
                text += stream.step(self._library, number) or ""
        return text


def _is_same_anywhere(decoder: Any) -> bool:
    """Whether a token decodes alike at the start of a text and within it."""
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        return all(map(_is_same_anywhere, decoder.get("decoders", ())))
    return decoder.get("type") in ("ByteLevel", "ByteFallback", "Fuse")
