"""One token a UTF-8 byte: counts that can be made by hand, without any model.

Promises: id = byte; no special tokens.
Memory: five bytes for each byte of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rowmill.rows import Ids
from rowmill.tokens.protocol import PairParts, Spans, Stops


class ByteTokenizer:
    """`engine.tokenizer = "bytes"`."""

    specials: tuple[str, ...] = ()
    special_ids: tuple[int, ...] = ()
    bos = ""
    eos = ""
    named_tokens: Mapping[str, str] = {}
    chat_template = ""
    vocab_size = 256
    max_model_tokens = 0
    longest_token = 1
    digest = "bytes"
    around: tuple[list[int], list[int]] = ([], [])
    pair_parts = PairParts([], [], [], tells_apart=False)

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> tuple[Ids, Stops]:
        joined = "".join(texts)
        packed = joined.encode()
        if len(packed) == len(joined):
            lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        else:
            lengths = np.fromiter(map(len, map(str.encode, texts)), np.int64, len(texts))
        return np.frombuffer(packed, np.uint8).astype(np.uint32), np.cumsum(lengths)

    def encode_marked(
        self, texts: Sequence[str], mark: str, *, add_special: bool
    ) -> tuple[Ids, Stops]:
        plain = [text.replace(mark, "") for text in texts]
        return self.encode_batch(plain, add_special=add_special)

    def spans(self, text: str) -> Spans:
        lengths = np.fromiter(
            (len(character.encode()) for character in text), np.int64, len(text)
        )
        starts = np.repeat(np.arange(len(text), dtype=np.int64), lengths)
        ids = np.frombuffer(text.encode(), np.uint8).astype(np.uint32)
        return Spans(ids, starts, starts + 1)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return bytes(ids).decode(errors="replace")
