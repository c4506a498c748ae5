"""Requests -> packed token ids: render what is a conversation, encode what is text, take ids as they are.

Promises: rendered chat is encoded without BOS of the tokenizer's own, raw text with it;
each text is encoded once; control tokens inside data become plain text where the job says so.
Knows nothing of: lengths, sampling.
Memory: one chunk of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from rowmill.errors import InvalidRow, RowError, TooLong
from rowmill.measure.chat import ChatTemplate
from rowmill.measure.control_tokens import ControlTokens, strings_in, unused_mark
from rowmill.rows import Ids, Request
from rowmill.tokens.protocol import Stops, Tokenizer, pack

COUNTED_CHARS = 1 << 20
"""Texts of up to so many characters are counted to the token, however far too long they are."""
Reject = Callable[[int, RowError], None]
_NO_IDS = np.empty(0, np.uint32)
_spans_of = attrgetter("data_spans")


class Encoder:
    """Encodes chunks of rows."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        data_is_text: bool,
        needs_template: bool,
        limit: int = 0,
    ) -> None:
        """An encoder of one model.

        Args:
            tokenizer: The model's.
            template: Its chat template; None where it has none.
            data_is_text: Control tokens inside data are encoded as plain text.
            needs_template: Without one a conversation is a row error; else it passes uncounted.
            limit: Tokens of which a text that surely has more is a row error, and not encoded; 0: none.
        """
        self._tokenizer = tokenizer
        self._template = template
        self._data_is_text = data_is_text
        self._needs_template = needs_template
        self._controls = ControlTokens(tokenizer.specials)
        self._limit = limit
        self.control_rows = 0
        """Rows so far whose data holds control tokens of the vocabulary."""

    def encode(
        self, requests: Sequence[Request], reject: Reject
    ) -> tuple[Ids, Stops, set[int]]:
        """Ids of each row, and the rows that fell out: those are empty."""
        texts = [request.text for request in requests]
        if None not in texts and self._is_plain(requests, texts) and self._may_fit(texts):  # type: ignore[arg-type]
            try:
                return *self._tokenizer.encode_batch(texts, add_special=True), set()  # type: ignore[arg-type]
            except UnicodeEncodeError:
                pass  # one of them holds half a character: go row by row
        return self._one_by_one(requests, reject)

    def _is_plain(self, requests: Sequence[Request], texts: Sequence[str]) -> bool:
        """True where no data holds a control token, by one look at all texts."""
        if not any(map(_spans_of, requests)):
            return True
        return not self._controls.may_be_in("\n".join(texts))

    def _may_fit(self, texts: Sequence[str]) -> bool:
        longest = max(map(len, texts), default=0) if self._limit else 0
        if longest <= COUNTED_CHARS or not self._tokenizer.longest_token:
            return True
        return longest <= self._limit * self._tokenizer.longest_token

    def _one_by_one(
        self, requests: Sequence[Request], reject: Reject
    ) -> tuple[Ids, Stops, set[int]]:
        parts: list[Ids] = [_NO_IDS] * len(requests)
        batches: dict[bool, tuple[list[int], list[str]]] = {True: ([], []), False: ([], [])}
        bad: set[int] = set()
        for i, request in enumerate(requests):
            try:
                found = self._row(request)
            except RowError as error:
                reject(i, error)
                bad.add(i)
                continue
            if isinstance(found, str):
                rows, texts = batches[request.text is not None]
                rows.append(i)
                texts.append(found)
            else:
                parts[i] = found
        for add_special, (rows, texts) in batches.items():
            ids, stops = self._tokenizer.encode_batch(texts, add_special=add_special)
            starts = [0, *stops.tolist()]
            for i, start, stop in zip(rows, starts, stops.tolist(), strict=False):
                parts[i] = ids[start:stop]
        return *pack(parts), bad

    def _row(self, request: Request) -> Ids | str:
        """Ids where they are known, else the text to encode with others."""
        if request.ids is not None:
            return self._given(request.ids)
        if request.messages is not None:
            return self._chat(request)
        if request.text is None:
            return _NO_IDS  # a whole body: its endpoint counts
        text = self._fitting(request.text)
        if self._controls.may_be_in(text) and request.data_spans:
            if self._controls.is_in(list(request.data_spans[1::2])):
                self.control_rows += 1
            if self._data_is_text:
                mark = unused_mark([text])
                marked = self._controls.broken_parts(request.data_spans, mark)
                return self._marked(marked, mark, add_special=True)
        return _whole(text)

    def _given(self, ids: Sequence[int]) -> Ids:
        given = np.asarray(ids, np.uint32)
        size = self._tokenizer.vocab_size
        if len(given) and int(given.max()) >= size:
            at = int(given.argmax())
            reason = f"token id {given[at]} at position {at}, expected ids from 0 to {size - 1}"
            raise InvalidRow(reason=reason)
        return given

    def _chat(self, request: Request) -> Ids | str:
        if self._template is None:
            if not self._needs_template:
                return _NO_IDS
            reason = "the row is a conversation, and the model has no chat template; set `engine.chat_template`"
            raise InvalidRow(reason=reason)
        messages, tools = request.messages or [], request.tools
        data = [list(messages), tools]
        if not self._controls.is_in(data):
            return self._fitting(_whole(self._template.render(messages, tools)))
        self.control_rows += 1
        if not self._data_is_text:
            return self._fitting(_whole(self._template.render(messages, tools)))
        mark = unused_mark(strings_in(data))
        messages, tools = self._controls.broken(data, mark)
        return self._marked(self._template.render(messages, tools), mark, add_special=False)

    def _fitting(self, text: str) -> str:
        """The text, if it is not surely too long: each of its characters is a byte at least."""
        if self._may_fit([text]):
            return text
        tokens = len(text) // self._tokenizer.longest_token
        raise TooLong(
            prompt_tokens=tokens, asked_tokens=0, limit_tokens=self._limit, is_counted=False
        )

    def _marked(self, text: str, mark: str, *, add_special: bool) -> Ids:
        ids, _ = self._tokenizer.encode_marked([_whole(text)], mark, add_special=add_special)
        return ids


def _whole(text: str) -> str:
    """The text, if it can be encoded at all."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = "the prompt holds half a surrogate pair (\\ud800 to \\udfff), expected whole characters"
        raise InvalidRow(reason=reason) from error
    return text
