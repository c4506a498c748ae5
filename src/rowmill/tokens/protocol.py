"""What every tokenizer promises, and how many lists of ids become one packed array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rowmill.rows import Ids

Stops = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """The tokens of one text: T ids, and the characters that each stands for, T int64 each."""

    ids: Ids
    starts: Stops
    stops: Stops


class PairParts(NamedTuple):
    """Ids that stand around and between the two texts of a pair."""

    before: list[int]
    between: list[int]
    after: list[int]
    tells_apart: bool
    """Whether the model is told which of its tokens are the second text's (`token_type_ids`)."""


class Tokenizer(Protocol):
    """Texts to packed token ids and back.

    Shapes: R texts, T tokens in all; ids T uint32, stops R int64 (one past each text's last token).
    """

    specials: tuple[str, ...]
    """Control tokens of the vocabulary, as text: what data must not smuggle in."""
    special_ids: tuple[int, ...]
    """Their ids, in the same order."""
    bos: str
    """Text of the token that begins a sequence; empty for none."""
    eos: str
    """Text of the token that ends one; empty for none."""
    named_tokens: Mapping[str, str]
    """Names a chat template may use (`bos_token`, `pad_token`, ...) -> text."""
    chat_template: str
    """The model's own Jinja template; empty for none."""
    vocab_size: int
    """One past the largest id."""
    max_model_tokens: int
    """Context length the model's files tell; 0 where they do not."""
    digest: str
    """Changes whenever the same text could become other ids."""

    @property
    def longest_token(self) -> int:
        """Most bytes of text that one token stands for; 0 where there is no such bound."""
        ...

    def encode_batch(self, texts: Sequence[str], *, add_special: bool) -> tuple[Ids, Stops]:
        """Ids of each text; control tokens in a text are parsed.

        Args:
            texts: What to encode.
            add_special: Put BOS (and what else the model wants) around each text.

        Raises:
            UnicodeEncodeError: a text holds half a surrogate pair.
        """
        ...

    def encode_marked(
        self, texts: Sequence[str], mark: str, *, add_special: bool
    ) -> tuple[Ids, Stops]:
        """Ids of texts in which `mark` breaks each control token that is data.

        Unbroken control tokens are parsed; broken ones are encoded as plain text, without the mark.
        """
        ...

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """Ids that `add_special` puts before a text, and behind it."""
        ...

    @property
    def pair_parts(self) -> PairParts:
        """What is put around two texts that go into the model as one."""
        ...

    def spans(self, text: str) -> Spans:
        """Tokens of a text with nothing put around it, control tokens in it as the plain text they are."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of the ids."""
        ...


def pack(parts: Sequence[Ids]) -> tuple[Ids, Stops]:
    """One packed array of several, and where each ends."""
    stops = np.cumsum(np.fromiter((len(part) for part in parts), np.int64, len(parts)))
    return (np.concatenate(parts) if parts else np.empty(0, np.uint32)), stops
