"""A text that is too long to embed -> the parts of it that fit, each with its place in the text.

Promises: no part has more tokens than the limit, what is put before and around it counted in; none ends inside a
character; chunks end where a word does if there is an end near, come in order and together hold every token of the
text. A beginning or an end is as long as fits, as other libraries cut.
Knows nothing of: rows, engines.
Memory: the tokens of one text.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from rowmill.errors import ConfigError
from rowmill.rows import Ids
from rowmill.tokens.protocol import Spans, Tokenizer

_NEAR_SHARE = 8
"""An eighth of a part may be given up for a word's end."""


class TextPart(msgspec.Struct, frozen=True):
    """A part of a text."""

    ids: Ids
    """Whole: what is put before and around it is in it."""
    start: int
    """First character."""
    stop: int


class LongTexts:
    """The rule of one job."""

    def __init__(
        self, tokenizer: Tokenizer, *, limit: int, policy: str, prefix: str, overlap: int
    ) -> None:
        """Parts of at most `limit` tokens.

        Args:
            policy: `chunk`, `truncate_left` or `truncate_right`.
            prefix: Put before each part.
            overlap: Tokens that neighbouring chunks share.

        Raises:
            ConfigError: Nothing fits beside the prefix, or neighbours would share all.
        """
        self.limit, self.policy = limit, policy
        before, after = tokenizer.around
        own = tokenizer.spans(prefix).ids if prefix else np.empty(0, np.uint32)
        self._before = np.concatenate([np.array(before, np.uint32), own])
        self._after = np.array(after, np.uint32)
        self._tokenizer, self._overlap = tokenizer, overlap
        self._room = limit - len(self._before) - len(self._after)
        if limit and self._room <= overlap:
            reason = (
                f"`embed.prefix` and `embed.overlap` leave {max(self._room - overlap, 0)} of {limit} tokens"
                " for the text; make them shorter"
            )
            raise ConfigError(reason=reason)

    def parts(self, text: str) -> list[TextPart]:
        """The parts of a text, without its prefix, that is too long."""
        found = self._tokenizer.spans(text)
        if self.policy == "truncate_right":
            bounds = [(0, self._cut_at(found, 0))]
        elif self.policy == "truncate_left":
            bounds = [(self._beginning(found), len(found.ids))]
        else:
            bounds = list(self._chunks(found, text))
        return [self._part(found, first, last, text) for first, last in bounds]

    def _chunks(self, found: Spans, text: str) -> Iterator[tuple[int, int]]:
        first = 0
        while True:
            last = self._end(found, first, text)
            yield first, last
            if last == len(found.ids):
                return
            back = max(last - self._overlap, first + 1)
            first = next((i for i in range(back, last) if _is_border(found, i)), last)

    def _end(self, found: Spans, first: int, text: str) -> int:
        """One past the last token of the part that begins with `first`."""
        most = min(first + self._room, len(found.ids))
        if most == len(found.ids):
            return most
        least = max(first + 1, most - self._room // _NEAR_SHARE)
        for at in range(most, least - 1, -1):
            if _is_border(found, at) and _is_word_end(found, at, text):
                return at
        return self._cut_at(found, first)

    def _cut_at(self, found: Spans, first: int) -> int:
        """As far as there is room, but for half a character."""
        most = min(first + self._room, len(found.ids))
        return next((at for at in range(most, first, -1) if _is_border(found, at)), most)

    def _beginning(self, found: Spans) -> int:
        least = len(found.ids) - self._room
        return next((i for i in range(least, len(found.ids)) if _is_border(found, i)), least)

    def _part(self, found: Spans, first: int, last: int, text: str) -> TextPart:
        ids = np.concatenate([self._before, found.ids[first:last], self._after])
        stop = len(text) if last == len(found.ids) else int(found.stops[last - 1])
        start = int(found.starts[first]) if first else 0
        return TextPart(ids, start, stop)


def _is_border(found: Spans, at: int) -> bool:
    """Whether no character has tokens on both sides of a place between two tokens."""
    return bool(found.starts[at] >= found.stops[at - 1]) if 0 < at < len(found.ids) else True


def _is_word_end(found: Spans, at: int, text: str) -> bool:
    begin, end = int(found.starts[at]), int(found.stops[at - 1])
    return begin > end or text[begin : begin + 1].isspace() or text[end - 1 : end].isspace()
