"""Requests -> Prompts: template, token ids, length.

Promises: every request becomes one row of the Prompts, in order, or is rejected by its index;
no row passes whose prompt and `max_tokens` exceed the context.
Knows nothing of: files (images are looked at by media/sight.py), order of work, engines beyond their Limits.
Memory: one chunk of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from rowmill.errors import InvalidRow, RowError
from rowmill.measure.encode import Encoder
from rowmill.measure.lengths import Counts, LengthRule, Truths
from rowmill.measure.long_texts import LongTexts
from rowmill.media.sight import Sight, tokens_of
from rowmill.rows import Ids, Piece, Prompts, Request, Sampling
from rowmill.tokens.protocol import Stops, pack

Reject = Callable[[int, RowError], None]
NONE_KNOWN: Mapping[int, Ids] = {}
DAY = "template_date"
"""In a run's identity: the day that its first start told the chat template, for all later ones."""


class Measure:
    """The station, open."""

    def __init__(
        self,
        encoder: Encoder | None,
        rule: LengthRule,
        *,
        is_wire: bool,
        template_date: str,
        identity: dict[str, str],
        prefix: str = "",
        long_texts: LongTexts | None = None,
        sight: Sight | None = None,
    ) -> None:
        self._prefix, self._long_texts, self.sight = prefix, long_texts, sight
        self._encoder = encoder
        self._rule = rule
        self._is_wire = is_wire
        self._identity = identity
        self.template_date = template_date
        """The day (ISO) that the chat template is told; empty where it asks for none."""

    @property
    def control_rows(self) -> int:
        """Rows so far whose data holds control tokens of the vocabulary."""
        return self._encoder.control_rows if self._encoder else 0

    def notes(self) -> list[str]:
        """What people should know of how rows were measured so far."""
        return self.sight.notes() if self.sight is not None else []

    def identity(self) -> dict[str, str]:
        """What of this station changes answers: digests of tokenizer and template, and the day that one asks for."""
        day = {DAY: self.template_date} if self.template_date else {}
        return {**self._identity, **day}

    def prompts(
        self,
        requests: Sequence[Request],
        reject: Reject,
        known: Mapping[int, Ids] = NONE_KNOWN,
    ) -> Prompts:
        """The requests of one chunk as Prompts.

        Args:
            requests: A few hundred rows; more at once gain nothing.
            reject: Called with the index in `requests` of each row that falls out, and why.
            known: By key, what `encoded` gave of rows before: they are not encoded again.
        """
        requests = self._with_prefix(requests)
        blind: set[int] = set()
        if self.sight is not None:
            requests, blind = self.sight.seen(requests, reject)
        samplings, sampling_of = _distinct([request.sampling for request in requests])
        wants = np.fromiter((s.max_tokens or 0 for s in samplings), np.int64, len(samplings))
        asked = wants[sampling_of] if len(samplings) > 1 else np.repeat(wants, len(requests))
        ids, stops, bad = self._with_known(requests, _but(reject, blind), known)
        bad |= blind
        prompt = np.diff(stops, prepend=0)
        if self.sight is not None:
            prompt = prompt + np.array([tokens_of(r)[1] for r in requests], np.int64)
        kept, max_tokens, is_bad = self._rule.apply(prompt, asked)
        for i in np.flatnonzero(is_bad).tolist():
            if i not in bad:
                uncut = self._uncut(requests[i])
                reject(i, self._rule.error(int(prompt[i]), int(asked[i]), uncut=uncut))
                bad.add(i)
        self._refuse_empty(prompt, bad, reject)
        prompts = self._columns(requests, ids, stops)
        prompts.samplings, prompts.sampling_of = samplings, sampling_of
        prompts.max_tokens = max_tokens.tolist()
        if self._long_texts is not None:
            self._part_long(prompts, requests, self._long_texts)
        is_cut = kept < prompt
        if self._rule.cuts and is_cut.any():
            self._cut(prompts, requests, kept, is_cut, reject, bad)
        if not bad:
            return prompts
        return prompts.take([i for i in range(len(requests)) if i not in bad])

    def _with_known(
        self, requests: Sequence[Request], reject: Reject, known: Mapping[int, Ids]
    ) -> tuple[Ids, Stops, set[int]]:
        rest = [i for i, request in enumerate(requests) if request.key not in known]
        if len(rest) == len(requests):
            return self._encoded(requests, reject)
        parts = [known.get(request.key) for request in requests]
        ids, stops, bad = self._encoded(
            [requests[i] for i in rest], lambda at, error: reject(rest[at], error)
        )
        for i, part in zip(rest, np.split(ids, stops[:-1]), strict=True) if rest else ():
            parts[i] = part
        return *pack(parts), {rest[at] for at in bad}  # type: ignore[arg-type]

    def encoded(
        self, requests: Sequence[Request], reject: Reject
    ) -> tuple[Ids, Stops, set[int]]:
        """Token ids of each row before any rule of length, and the rows that fell out: those are empty."""
        return self._encoded(self._with_prefix(requests), reject)

    def _with_prefix(self, requests: Sequence[Request]) -> Sequence[Request]:
        if not self._prefix:
            return requests
        return [_prefixed(request, self._prefix) for request in requests]

    def _encoded(
        self, requests: Sequence[Request], reject: Reject
    ) -> tuple[Ids, Stops, set[int]]:
        if self._encoder is None:
            return np.empty(0, np.uint32), np.zeros(len(requests), np.int64), set()
        return self._encoder.encode(requests, reject)

    def _refuse_empty(self, prompt: Counts, bad: set[int], reject: Reject) -> None:
        """A prompt without a single token: an engine that takes ids has nothing to begin from."""
        if self._is_wire or prompt.all():
            return
        for i in np.flatnonzero(prompt == 0).tolist():
            if i not in bad:
                reason = "the prompt has no tokens once it is encoded, expected at least one"
                reject(i, InvalidRow(reason=reason))
                bad.add(i)

    def _columns(self, requests: Sequence[Request], ids: Ids, stops: Stops) -> Prompts:
        return Prompts(
            keys=[request.key for request in requests],
            ids=ids,
            stops=stops,
            max_tokens=[],
            samplings=[],
            sampling_of=[],
            wires=[request.wire for request in requests] if self._is_wire else [],
            wire_fields=[request.wire_field for request in requests] if self._is_wire else [],
            media={r.key: list(r.media) for r in requests if r.media} if self.sight else {},
        )

    def _part_long(
        self, prompts: Prompts, requests: Sequence[Request], rule: LongTexts
    ) -> None:
        """Put in place of texts that are too long to embed what of them fits."""
        lengths = np.diff(prompts.stops, prepend=0)
        too_long = np.flatnonzero(lengths > rule.limit).tolist() if rule.limit else []
        rows = list(prompts.row_ids()) if too_long else []
        for i in too_long:
            key, text = prompts.keys[i], (requests[i].text or "")[len(self._prefix) :]
            parts = rule.parts(text)
            rows[i] = np.concatenate([part.ids for part in parts])
            texts = [self._prefix + text[part.start : part.stop] for part in parts]
            if rule.policy == "chunk":
                prompts.pieces[key] = [
                    Piece(len(part.ids), part.start, part.stop) for part in parts
                ]
            else:
                prompts.cut_from[key] = int(lengths[i])
            if self._is_wire:
                sent = texts if rule.policy == "chunk" else texts[0]
                prompts.wires[i] = msgspec.json.encode(sent)
        if too_long:
            prompts.ids, prompts.stops = pack(rows)

    def _uncut(self, request: Request) -> str:
        """What of a row is never cut; empty where it can be."""
        if request.media:  # half of what an image takes is none
            return "images and audio"
        is_sent = self._is_wire and request.messages is not None
        return "messages that an endpoint is sent" if is_sent else ""

    def _cut(
        self,
        prompts: Prompts,
        requests: Sequence[Request],
        kept: Counts,
        is_cut: Truths,
        reject: Reject,
        bad: set[int],
    ) -> None:
        """Cut prompts to `kept` tokens, in place; a conversation on its way to an endpoint cannot be cut."""
        parts = list(prompts.row_ids())
        for i in np.flatnonzero(is_cut).tolist():
            if i in bad:
                continue
            length = int(kept[i])
            part = parts[i]
            if uncut := self._uncut(requests[i]):
                tokens = len(part) + tokens_of(requests[i])[1]
                asked = requests[i].sampling.max_tokens or 0
                reject(i, self._rule.error(tokens, asked, uncut=uncut))
                bad.add(i)
                continue
            parts[i] = part[-length:] if self._rule.policy == "truncate_left" else part[:length]
            if self._is_wire:
                prompts.wires[i] = msgspec.json.encode(parts[i].tolist())
        prompts.ids = np.concatenate(parts)
        prompts.stops = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))


def _but(reject: Reject, rows: set[int]) -> Reject:
    """Reject no row a second time."""
    if not rows:
        return reject
    return lambda at, error: None if at in rows else reject(at, error)


def _prefixed(request: Request, prefix: str) -> Request:
    """The request with words of the job's before its text."""
    text = prefix + (request.text or "")
    spans = request.data_spans
    return msgspec.structs.replace(
        request,
        text=text,
        wire=msgspec.json.encode(text) if request.wire else b"",
        data_spans=(prefix + spans[0], *spans[1:]) if spans else (),
    )


def _distinct(samplings: Sequence[Sampling]) -> tuple[list[Sampling], list[int]]:
    """Distinct settings in order of first use, and each row's index among them."""
    if not samplings:
        return [], []
    numbers = [id(sampling) for sampling in samplings]
    if len(set(numbers)) == 1:
        return [samplings[0]], [0] * len(samplings)
    index: dict[Sampling, int] = {}
    by_number = {
        number: index.setdefault(sampling, len(index))
        for number, sampling in dict(zip(numbers, samplings, strict=True)).items()
    }
    return list(index), [by_number[number] for number in numbers]
