"""Rows of a feed -> Outcomes, through transformers' own continuous batching.

Promises: rows enter as they are taken and leave as they end; the library holds few more than have seats;
a row that it refuses fails alone.
Knows nothing of: the library (transformers_pages.py).
Memory: the rows taken, of which the feed keeps what there is no seat for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from rowmill import errors
from rowmill.engines import outcome_of
from rowmill.engines.prompt import check_prompt
from rowmill.engines.protocol import Feed
from rowmill.engines.transformers_pages import Pages, Told
from rowmill.engines.transformers_rows import Row, Sample, outcomes_of, row_of, see_all
from rowmill.rows import Limits, Outcome, Prompts
from rowmill.tokens.answers import AnswerTexts

_LOOK_S = 0.02
"""So long an answer is waited for before the feed is looked at again."""
_SPARE_SHARE = 2
"""Of the seats a half more is inside, so that one that is free is taken at the next step."""


class PagedTransformers:
    """An open model."""

    def __init__(
        self,
        pages: Pages,
        *,
        limits: Limits,
        vocabulary: int,
        ends: frozenset[int],
        defaults: Mapping[str, Any],
        texts: AnswerTexts,
    ) -> None:
        self.limits = limits
        self._pages = pages
        self._vocabulary = vocabulary
        self._ends = ends
        self._defaults = defaults
        self._texts = texts
        self._waiting: deque[Sample] = deque()
        self._inside: dict[str, Sample] = {}
        self._most_inside = limits.seats + max(1, limits.seats // _SPARE_SHARE)
        self._names = map(str, count())

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`. Raises: EngineDied, where the library's thread ended."""
        has_ended = False
        while True:
            while not has_ended and len(self._waiting) < self.limits.seats:
                prompts = feed.take(wait=self._is_idle)
                if not prompts:
                    has_ended = prompts is None
                    break
                yield self._take(prompts)
            self._enter()
            if self._inside:
                yield self._leave()
            elif has_ended and not self._waiting:
                return

    def counters(self) -> dict[str, float]:
        """See `channel.Gauge`."""
        pages = self._pages
        running = pages.running
        return {
            "steps": pages.steps,
            "running": running,
            "waiting_rows": max(0, len(self._waiting) + len(self._inside) - running),
            "kv_use": round(min(1.0, max(0.0, pages.use)), 4),
        }

    def close(self) -> None:
        """Free the model."""
        self._pages.close()
        del self._pages

    @property
    def _is_idle(self) -> bool:
        return not (self._waiting or self._inside)

    def _take(self, prompts: Prompts) -> list[Outcome]:
        """Let rows wait; the outcomes of those that cannot be computed."""
        refused, limit = [], self.limits.max_model_tokens
        for i in range(len(prompts)):
            row = row_of(prompts, i, limit=limit, defaults=self._defaults)
            try:
                check_prompt(
                    row.ids, asked=row.max_tokens, limit=limit, vocabulary=self._vocabulary
                )
                check_draw(row)
            except errors.RowError as error:
                refused.append(outcome_of.failed(row, error))
            else:
                # Greedy samples are equal, so one is computed.
                row.num_samples = row.sampling.n if row.draw.temperature else 1
                self._waiting += [
                    Sample(row, index, None, [], []) for index in range(row.num_samples)
                ]
        return refused

    def _enter(self) -> None:
        """Let samples in that wait, as many as there is room for."""
        while self._waiting and len(self._inside) < self._most_inside:
            row = self._waiting[0].row
            if row.draw.temperature and not self._pages.draws:
                if self._inside:
                    return  # the first row that draws waits once, until those before it have left
                self._pages.draw()
            sample, name = self._waiting.popleft(), next(self._names)
            self._pages.add(
                name,
                row.ids.tolist(),
                room=row.room,
                ends=() if row.sampling.ignore_eos else self._ends,
                draw=row.draw,
                is_watched=bool(row.sampling.stop),
            )
            self._inside[name] = sample

    def _leave(self) -> list[Outcome]:
        """The outcomes of rows that ended since."""
        ended, failed = [], []
        for told in self._pages.told(wait_s=_LOOK_S):
            sample = self._inside.get(told.name)
            if sample is None:
                continue  # it ended at its stop string, or with its row, and the library went on for a step
            if told.failure:
                failed.append(self._fail(sample.row))
            elif self._has_ended(sample, told):
                del self._inside[told.name]
                ended.append(sample)
        return failed + outcomes_of(ended, self._ends, self._texts)

    def _has_ended(self, sample: Sample, told: Told) -> bool:
        """Note what a sample said, and whether that is all."""
        see_all(sample, told.tokens, self._ends, self._texts)
        if sample.finish_reason and not told.is_whole:
            self._pages.cancel(told.name)
        return bool(sample.finish_reason)

    def _fail(self, row: Row) -> Outcome:
        """End a row whose sample the library refuses; the others of it go with it."""
        for name in [name for name, sample in self._inside.items() if sample.row is row]:
            del self._inside[name]
            self._pages.cancel(name)
        self._waiting = deque(sample for sample in self._waiting if sample.row is not row)
        reason = "transformers refuses the row; see the engine's log"
        return outcome_of.failed(row, errors.Refused(reason=reason))


def check_draw(row: Row) -> None:
    """See that the library can draw for a row as it is asked.

    Raises:
        InvalidRow: It cannot.
    """
    draw, sampling = row.draw, row.sampling
    wrong = ""
    if draw.temperature and (sampling.seed is not None or sampling.seed_per_row):
        wrong = f"`seed` {sampling.seed} with temperature {draw.temperature}"
    elif draw.repetition != 1:
        wrong = f"`repetition_penalty` {draw.repetition}"
    elif draw.temperature and draw.min_p:
        wrong = f"`min_p` {draw.min_p}"
    elif draw.has_penalty:
        wrong = "`presence_penalty` or `frequency_penalty`"
    if wrong:
        own = "; set it to 1, or" if draw.repetition != 1 else "; set"
        reason = f'{wrong} cannot be honoured with pages{own} `engine.batching = "padded"`'
        raise errors.InvalidRow(reason=reason)
