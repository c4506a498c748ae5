"""Requests with a query and documents -> Prompts: each pair as the one text that the model takes it for.

Promises: a pair stands as the tokenizer's own template says; control tokens inside data become plain text where the job
says so; of a pair that is too long the document is cut, never the query.
Knows nothing of: files, engines beyond their Limits.
Memory: one chunk of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rowmill.config import TooLongPolicy
from rowmill.errors import RowError, TooLong
from rowmill.measure.control_tokens import ControlTokens
from rowmill.measure.encode import Reject
from rowmill.measure.lengths import LengthRule
from rowmill.measure.measurer import NONE_KNOWN, Measure
from rowmill.rows import Ids, Pair, Prompts, Request
from rowmill.tokens.protocol import Stops, Tokenizer, pack

_NONE: Ids = np.empty(0, np.uint32)
_WAY_ON = 'set `validate.too_long = "truncate_right"`, which cuts documents'
_ANY_LENGTH = LengthRule(limit=0, policy="error", fills_context=False)


class PairEncoder:
    """Encodes the pairs of one model."""

    def __init__(
        self, tokenizer: Tokenizer, *, limit: int, policy: TooLongPolicy, data_is_text: bool
    ) -> None:
        """An encoder.

        Args:
            limit: Tokens that a pair may have; 0: not known.
            policy: `error`, or `truncate_right` for documents.
        """
        self._tokenizer, self._limit, self._policy = tokenizer, limit, policy
        self._data_is_text = data_is_text
        self._controls = ControlTokens(tokenizer.specials)
        parts = tokenizer.pair_parts
        self._before, self._between, self._after = (
            np.array(ids, np.uint32) for ids in (parts.before, parts.between, parts.after)
        )
        self._tells_apart = parts.tells_apart
        self.control_rows = 0
        """Rows so far whose data holds control tokens of the vocabulary."""

    def encode(
        self, requests: Sequence[Request]
    ) -> list[list[tuple[Ids, Pair, int]] | RowError]:
        """Of each row, its pairs with the tokens that each had before it was cut; or why there are none."""
        texts = [text for r in requests for text in (r.text or "", *(r.documents or ()))]
        encoded = iter(self._texts(texts))
        found: list[list[tuple[Ids, Pair, int]] | RowError] = []
        for request in requests:
            query, *documents = (next(encoded) for _ in range(1 + len(request.documents or ())))
            try:
                found.append([self._pair(query, document) for document in documents])
            except RowError as error:
                found.append(error)
        return found

    def _pair(self, query: Ids, document: Ids) -> tuple[Ids, Pair, int]:
        head = np.concatenate([self._before, query, self._between])
        whole = len(head) + len(document) + len(self._after)
        tokens = whole
        if self._limit and whole > self._limit:
            room = len(document) - (whole - self._limit)
            if self._policy == "error" or room < 1:
                raise TooLong(
                    prompt_tokens=whole,
                    asked_tokens=0,
                    limit_tokens=self._limit,
                    uncut="queries" if room < 1 else "",
                    way_on=_WAY_ON,
                )
            document, tokens = document[:room], self._limit
        ids = np.concatenate([head, document, self._after])
        return ids, Pair(tokens, len(head) if self._tells_apart else tokens), whole

    def _texts(self, texts: Sequence[str]) -> list[Ids]:
        is_odd = [self._controls.is_in(text) for text in texts]
        self.control_rows += sum(is_odd)
        plain = [
            text
            for text, odd in zip(texts, is_odd, strict=True)
            if not (odd and self._data_is_text)
        ]
        ids, stops = self._tokenizer.encode_batch(plain, add_special=False)
        easy = iter(np.split(ids, stops[:-1]) if len(plain) else ())
        return [
            self._tokenizer.spans(text).ids if odd and self._data_is_text else next(easy)
            for text, odd in zip(texts, is_odd, strict=True)
        ]


class PairMeasure(Measure):
    """The station of jobs that score pairs."""

    def __init__(
        self, encoder: PairEncoder | None, *, is_wire: bool, identity: dict[str, str]
    ) -> None:
        """A station; without an encoder an endpoint tokenises unseen."""
        super().__init__(
            None, _ANY_LENGTH, is_wire=is_wire, template_date="", identity=identity
        )
        self._pairs = encoder

    @property
    def control_rows(self) -> int:
        """See `Measure`."""
        return self._pairs.control_rows if self._pairs else 0

    def prompts(
        self,
        requests: Sequence[Request],
        reject: Reject,
        known: Mapping[int, Ids] = NONE_KNOWN,
    ) -> Prompts:
        """See `Measure`; what is `known` of a row does not say where its pairs end."""
        del known
        rows, bad = [_NONE] * len(requests), set()
        pairs: dict[int, list[Pair]] = {}
        cut_from: dict[int, int] = {}
        for i, found in enumerate(self._pairs.encode(requests) if self._pairs else ()):
            if isinstance(found, RowError):
                reject(i, found)
                bad.add(i)
                continue
            key = requests[i].key
            rows[i] = np.concatenate([ids for ids, _, _ in found])
            pairs[key] = [pair for _, pair, _ in found]
            whole = sum(tokens for _, _, tokens in found)
            if whole > len(rows[i]):
                cut_from[key] = whole
        prompts = self._columns(requests, *pack(rows))
        number = len(requests)
        prompts.samplings = [requests[0].sampling] if number else []
        prompts.sampling_of, prompts.max_tokens = [0] * number, [0] * number
        prompts.pairs, prompts.cut_from = pairs, cut_from
        return prompts.take([i for i in range(number) if i not in bad]) if bad else prompts

    def encoded(
        self, requests: Sequence[Request], reject: Reject
    ) -> tuple[Ids, Stops, set[int]]:
        """See `Measure`: nothing is made ahead."""
        del reject
        return _NONE, np.zeros(len(requests), np.int64), set()
