"""Rows of a feed -> Outcomes, through a batch that rows enter and leave between steps.

Promises: no row waits for ever: the one that waits longest enters next, with those most like it in length;
what the batch holds stays within its budget of tokens, as long as it is more than one row.
Knows nothing of: the library, but for what a batch answers.
Memory: the rows taken.
Source: Orca (Yu et al., OSDI 2022), scheduling by iteration; here over padded rows, so that likeness in length counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rowmill import errors
from rowmill.engines import outcome_of
from rowmill.engines.prompt import check_prompt
from rowmill.engines.protocol import Feed
from rowmill.engines.transformers_batch import PaddedBatch
from rowmill.engines.transformers_draw import logprobs_of, next_token
from rowmill.engines.transformers_rows import Sample, outcomes_of, row_of, samples_of
from rowmill.rows import Limits, Outcome, Prompts
from rowmill.tokens.answers import AnswerTexts

_HEADROOM = 64
"""Tokens that a row should be able to grow by once it is let in: to be sent out again costs its prompt anew."""
_PADDING_SHARE = 0.15
_FEW_TOKENS = 256
"""Prompts computed together are padded by no more than that share, as soon as they are so many tokens."""
_FREE_SHARE = 4
"""Rows are let in when a quarter of the seats is free: to compute one prompt takes as long as a step of all."""


class Transformers:
    """An open model."""

    def __init__(
        self,
        batch: PaddedBatch,
        *,
        limits: Limits,
        vocabulary: int,
        ends: frozenset[int],
        defaults: Mapping[str, Any],
        texts: AnswerTexts,
    ) -> None:
        self.limits = limits
        self._batch = batch
        self._vocabulary = vocabulary
        self._ends = ends
        self._defaults = defaults
        self._texts = texts
        self._waiting: deque[Sample] = deque()
        self._steps = 0

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        has_ended = False
        while True:
            while not has_ended:
                prompts = feed.take(wait=self._is_idle)
                if prompts is None:
                    has_ended = True
                elif prompts:
                    yield self._take(prompts)
                else:
                    break
            if self._is_idle:
                return
            yield self._advance()

    def counters(self) -> dict[str, float]:
        """See `channel.Gauge`."""
        return {
            "steps": self._steps,
            "running": len(self._batch.samples),
            "waiting_rows": len(self._waiting),
            "kv_use": round(min(1.0, self._batch.held_tokens / self.limits.kv_tokens), 4),
            # One batch more: prompts of like length are found among those that wait.
            "seats": 2 * self.limits.seats,
        }

    def close(self) -> None:
        """Free the model."""
        del self._batch

    @property
    def _is_idle(self) -> bool:
        return not (self._waiting or self._batch.samples)

    def _take(self, prompts: Prompts) -> list[Outcome]:
        """Let rows wait; the outcomes of those that cannot be computed."""
        refused, limit = [], self.limits.max_model_tokens
        for i in range(len(prompts)):
            row = row_of(prompts, i, limit=limit, defaults=self._defaults)
            try:
                check_prompt(
                    row.ids, asked=row.max_tokens, limit=limit, vocabulary=self._vocabulary
                )
                self._waiting += samples_of(row)
            except errors.RowError as error:
                refused.append(outcome_of.failed(row, error))
        return refused

    def _advance(self) -> list[Outcome]:
        """Let rows in where there is room, else make one step of all."""
        batch, self._steps = self._batch, self._steps + 1
        entering = self._entering()
        if entering:
            first = len(batch.samples)
            return self._see(batch.join(entering), range(first, first + len(entering)))
        while len(batch.samples) > 1 and batch.held_tokens > self.limits.kv_tokens:
            # The newest goes back: it has the least to lose, and is the next to come in again.
            self._waiting.appendleft(batch.samples[-1])
            batch.leave([len(batch.samples) - 1])
        return self._see(batch.step(), range(len(batch.samples)))

    def _entering(self) -> list[Sample]:
        """The rows to let in now, taken from those that wait."""
        batch, seats = self._batch, self.limits.seats
        free = seats - len(batch.samples)
        if not self._waiting or (batch.samples and free < max(1, seats // _FREE_SHARE)):
            return []
        chosen = alike(
            self._waiting,
            rows=free,
            step_tokens=self.limits.step_tokens,
            held_tokens=self.limits.kv_tokens,
            beside=(len(batch.samples), batch.width),
        )
        names = set(map(id, chosen))
        self._waiting = deque(sample for sample in self._waiting if id(sample) not in names)
        return chosen

    def _see(self, logits: Any, places: Iterable[int]) -> list[Outcome]:
        """Draw the next token of the rows at `places`, and let those go that end with it."""
        samples = self._batch.samples
        likeliest = logits.argmax(dim=-1).tolist()
        gone = []
        for i, place in enumerate(places):
            sample = samples[place]
            row = sample.row
            token = likeliest[i]
            if not row.draw.is_plain:
                token = next_token(
                    logits[i],
                    row.draw,
                    prompt=row.ids,
                    said=sample.said,
                    generator=sample.generator,
                )
            if row.sampling.logprobs is not None:
                sample.logprobs.append(logprobs_of(logits[i], token, row.sampling.logprobs))
            sample.see(token, self._ends, self._text)
            if sample.finish_reason:
                gone.append(place)
        ended = [samples[place] for place in gone]
        self._batch.leave(gone)
        return outcomes_of(ended, self._ends, self._texts)

    def _text(self, ids: list[int]) -> str:
        return self._texts.texts([ids])[0]


def alike(
    waiting: Iterable[Sample],
    *,
    rows: int,
    step_tokens: int,
    held_tokens: int,
    beside: tuple[int, int],
) -> list[Sample]:
    """The sample that waits longest, and those that differ least from it in length, as many as fit.

    Args:
        waiting: Samples in the order they came.
        rows: Most of them.
        step_tokens: Most tokens to compute at once, padding included; one sample may have more.
        held_tokens: Most that they may hold then, padding included, together with those in the batch.
        beside: Number of samples in the batch, and tokens that each holds.
    """
    inside, width = beside
    pool = list(waiting)
    first = pool[0]
    chosen: list[Sample] = []
    longest = own = 0
    for sample in sorted(pool, key=lambda sample: abs(sample.length - first.length)):
        wider = max(longest, sample.length)
        held = (inside + len(chosen) + 1) * (max(wider, width) + _HEADROOM)
        computed = (len(chosen) + 1) * wider
        padding = computed - own - sample.length
        is_padded = computed > _FEW_TOKENS and padding > _PADDING_SHARE * computed
        is_too_much = chosen and (computed > step_tokens or is_padded)
        if len(chosen) == rows or is_too_much or (held > held_tokens and inside + len(chosen)):
            break
        chosen.append(sample)
        longest, own = wider, own + sample.length
    return chosen
