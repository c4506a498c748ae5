"""A row while transformers has it, and its samples -> an Outcome.

Promises: a sample ends at an end token, at a stop string or at its room, whichever comes first; the token that ended
it is none of its text; counts are over all samples.
Knows nothing of: torch's models and caches.
Memory: the rows in hand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from rowmill.engines import outcome_of
from rowmill.engines.prompt import room_for, row_seed
from rowmill.engines.transformers_draw import Draw, draw_of
from rowmill.rows import Choice, Ids, Outcome, Prompts, Sampling
from rowmill.tokens.answers import AnswerTexts

TextOf = Callable[[list[int]], str]
_SEEDS = 2**63


class Row(msgspec.Struct, gc=False):
    """A row of the input."""

    key: int
    ids: Ids
    max_tokens: int
    """As asked; 0 for none."""
    room: int
    """Most tokens to generate for one sample."""
    sampling: Sampling
    draw: Draw
    began: float
    num_samples: int = 1
    """How many are computed for it."""
    done: list[Any] = []
    """Samples that ended."""


class Sample(msgspec.Struct, gc=False):
    """One answer as it grows."""

    row: Row
    index: int
    generator: Any
    said: list[int] = []
    logprobs: list[tuple[float, list[tuple[int, float]]]] = []
    finish_reason: str = ""
    text: str | None = None
    """Where a stop string ended it; else it is decoded at the end."""

    @property
    def length(self) -> int:
        """Tokens that the cache holds for it, or will before the next is drawn."""
        return len(self.row.ids) + len(self.said)

    def see(self, token: int, ends: frozenset[int], text_of: TextOf) -> None:
        """Add a token, and note how the answer ended where that was the last one."""
        self.said.append(token)
        sampling = self.row.sampling
        if token in ends and not sampling.ignore_eos:
            self.finish_reason = "stop"
        elif (
            sampling.stop
            and (text := _before_stop(text_of(self.said), sampling.stop)) is not None
        ):
            self.finish_reason, self.text = "stop", text
        elif len(self.said) >= self.row.room:
            self.finish_reason = "length"


def row_of(prompts: Prompts, i: int, *, limit: int, defaults: Mapping[str, Any]) -> Row:
    """A row of those that came, not looked at yet.

    Args:
        limit: tokens of prompt and answer.
        defaults: the model's, of what the row does not ask for.
    """
    sampling, asked = prompts.samplings[prompts.sampling_of[i]], prompts.max_tokens[i]
    ids = prompts.ids[prompts.stops[i - 1] if i else 0 : prompts.stops[i]]
    room = room_for(sampling, max_tokens=asked, prompt_tokens=len(ids), limit=limit)
    draw = draw_of(sampling, defaults)
    return Row(prompts.keys[i], ids, asked, room, sampling, draw, time.monotonic(), 1, [])


def see_all(
    sample: Sample, tokens: Sequence[int], ends: frozenset[int], texts: AnswerTexts
) -> None:
    """Add what of `tokens`, all that it said so far, is new; what is behind its end is left out."""
    for token in tokens[len(sample.said) :]:
        if sample.finish_reason:
            return
        sample.see(token, ends, lambda ids: texts.texts([ids])[0])


def samples_of(row: Row) -> list[Sample]:
    """What is to be computed of a row: greedy samples are equal, so one."""
    count = row.sampling.n if row.draw.temperature else 1
    row.num_samples = count
    return [Sample(row, index, _generator(row, index), [], []) for index in range(count)]


def _generator(row: Row, index: int) -> Any:
    import torch

    found, sampling = torch.Generator(), row.sampling
    if sampling.seed_per_row:
        found.manual_seed((row_seed(row.key, sampling.seed) + index) % _SEEDS)
    elif sampling.seed is not None:
        found.manual_seed((sampling.seed + index) % _SEEDS)
    else:
        found.seed()
    return found


def _before_stop(text: str, stops: tuple[str, ...]) -> str | None:
    places = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(places)] if places else None


def text_ids(sample: Sample, ends: frozenset[int]) -> list[int]:
    """Ids that are the answer's text."""
    is_ended = sample.finish_reason == "stop" and sample.said[-1] in ends
    return sample.said[:-1] if is_ended else sample.said


def outcomes_of(
    ended: Sequence[Sample], ends: frozenset[int], texts: AnswerTexts
) -> list[Outcome]:
    """The outcomes of rows whose last sample is one of those that ended now."""
    whole = []
    for sample in ended:
        sample.row.done.append(sample)
        if len(sample.row.done) == sample.row.num_samples:
            whole.append(sorted(sample.row.done, key=attrgetter("index")))
    flat = [sample for samples in whole for sample in samples]
    decoded = texts.texts([text_ids(sample, ends) for sample in flat])
    found = iter(
        text if sample.text is None else sample.text
        for sample, text in zip(flat, decoded, strict=True)
    )

    def text_of(ids: list[int]) -> str:
        return texts.texts([ids])[0]

    return [answered(samples, [next(found) for _ in samples], text_of) for samples in whole]


def answered(samples: list[Sample], texts: list[str], token_text: TextOf) -> Outcome:
    """The outcome of a row with its samples, in index order."""
    row, sampling = samples[0].row, samples[0].row.sampling
    choices = [
        Choice(
            index=sample.index,
            text=text,
            finish_reason=sample.finish_reason,
            token_ids=sample.said if sampling.return_token_ids else None,
            logprobs=_entries(sample, token_text),
        )
        for sample, text in zip(samples, texts, strict=True)
    ]
    return outcome_of.answered(
        row, choices, output_tokens=sum(len(sample.said) for sample in samples)
    )


def _entries(sample: Sample, token_text: TextOf) -> list[dict[str, Any]] | None:
    if sample.row.sampling.logprobs is None:
        return None
    return [
        {
            "token": token_text([token]),
            "logprob": _number(logprob),
            # Tokens that are no text by themselves look alike: the most likely one, which comes first, stays.
            "top": {token_text([other]): _number(value) for other, value in reversed(top)},
        }
        for token, (logprob, top) in zip(sample.said, sample.logprobs, strict=True)
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
