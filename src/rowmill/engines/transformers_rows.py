"""A row while transformers has it, and its samples -> an Outcome.

Promises: a sample ends at an end token, at a stop string or at its room, whichever comes first; the token that ended
it is none of its text; counts are over all samples.
Knows nothing of: torch's models and caches.
Memory: the rows in hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from rowmill.engines import outcome_of
from rowmill.engines.prompt import row_seed
from rowmill.engines.transformers_draw import Draw
from rowmill.rows import Choice, Ids, Outcome, Sampling

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
