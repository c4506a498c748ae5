"""A row -> what vLLM is asked, and its samples -> an Outcome.

Promises: a choice is never cut by `max_tokens`; counts are over all samples; what is not asked for stays at the
defaults that come with the model (`generation_config.json`), as with `vllm.LLM` and `vllm serve`.
Knows nothing of: vLLM's classes, threads.
Memory: none kept.
Source: vLLM 0.25.1, 0.32.0, 0.33.0, read and tried: `n` > 1 with temperature 0 is refused, so it is asked once
and repeated; stop strings need its detokenizer, nothing else does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines import outcome_of
from rowmill.engines.prompt import row_seed
from rowmill.media.loaded import Loaded
from rowmill.rows import Ids, Outcome, Sampling

_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)
_DEFAULTS = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
_MOST_WORDS = 200
_GREEDY_BELOW = 1e-5


class Row(msgspec.Struct, gc=False):
    """A row while vLLM has it."""

    key: int
    ids: Ids
    max_tokens: int
    """As asked; 0 for none."""
    room: int
    """Most tokens to generate for one sample."""
    sampling: Sampling
    began: float
    attempts: int = 1
    media: Sequence[Loaded] = ()
    """Images and audio, in the order of their places in the prompt."""


class Sample(msgspec.Struct):
    """One answer as it comes from vLLM."""

    ids: list[int]
    finish_reason: str
    text: str | None = None
    """None where the ids are to be decoded here."""
    logprobs: Any = None


class Ended(msgspec.Struct):
    """A row that vLLM is done with."""

    row: Row
    samples: list[Sample]
    cached_tokens: int = 0
    prompt_tokens: int = 0
    """With what images and audio became; 0: as many as the row has ids."""


def parameters(
    sampling: Sampling, *, key: int, room: int, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments for `SamplingParams`; `structured_outputs` holds those for `StructuredOutputsParams`.

    Args:
        sampling: How the row wants its answer.
        key: The row's key: a seed of its own comes out of it.
        room: Most tokens of the answer.
        defaults: The model's own.
    """
    asked = {name: defaults[name] for name in _DEFAULTS if name in defaults}
    asked |= {name: value for name in _FIELDS if (value := getattr(sampling, name)) is not None}
    asked |= {"max_tokens": room, "detokenize": needs_text(sampling)}
    if sampling.seed_per_row:
        asked["seed"] = row_seed(key, sampling.seed)
    if sampling.n > 1 and asked.get("temperature", 1.0) >= _GREEDY_BELOW:
        asked["n"] = sampling.n
    if sampling.stop:
        asked["stop"] = list(sampling.stop)
    if sampling.ignore_eos:
        asked["ignore_eos"] = True
    if sampling.logprobs is not None:
        asked["logprobs"] = sampling.logprobs
    held = _held_to(sampling)
    if held:
        asked["structured_outputs"] = held
    return asked


def _held_to(sampling: Sampling) -> dict[str, Any]:
    if sampling.choices:
        return {"choice": list(sampling.choices)}
    if sampling.schema:
        return {"json": sampling.schema}
    return {"regex": sampling.regex} if sampling.regex else {}


def shown(row: Row) -> dict[str, Any]:
    """The images and audio of a row under vLLM's names for a prompt; nothing where it has none.

    Files have their digests for names: vLLM keeps what it made of them, and finds it without looking at pixels.
    """
    by_kind: dict[str, list[Loaded]] = {}
    for one in row.media:
        by_kind.setdefault(one.kind, []).append(one)
    if not by_kind:
        return {}
    return {
        "multi_modal_data": {
            kind: [one.value for one in some] for kind, some in by_kind.items()
        },
        "multi_modal_uuids": {
            kind: [one.digest for one in some] for kind, some in by_kind.items()
        },
    }


def needs_text(sampling: Sampling) -> bool:
    """Whether vLLM itself must decode: for stop strings, and for the texts of log-probabilities' tokens."""
    return bool(sampling.stop) or sampling.logprobs is not None


def refused(error: BaseException) -> errors.Refused:
    """VLLM's refusal of a row, in its own words."""
    words = " ".join(str(error).split())[:_MOST_WORDS] or type(error).__name__
    return errors.Refused(reason=f"vLLM: {words}")


def answered(ended: Ended, texts: Mapping[int, str]) -> Outcome:
    """The outcome of a row with its samples; `texts`: by index in `samples`, those decoded here."""
    row, sampling = ended.row, ended.row.sampling
    choices = [
        outcome_of.choice_of(
            index,
            texts.get(index, sample.text or ""),
            sample.finish_reason,
            sampling,
            ids=sample.ids,
            logprobs=logprob_entries(sample.logprobs, sampling.logprobs),
        )
        for index, sample in enumerate(ended.samples)
    ]
    return outcome_of.answered(
        row,
        choices,
        output_tokens=sum(len(sample.ids) for sample in ended.samples),
        prompt_tokens=ended.prompt_tokens,
        cached_tokens=ended.cached_tokens,
        attempts=row.attempts,
    )


def failed(row: Row, error: errors.RowError) -> Outcome:
    """The outcome of a row that gets no answer."""
    return outcome_of.failed(row, error, attempts=row.attempts)


def text_ids(sample: Sample) -> list[int]:
    """Ids that are the answer's text: the token that ended it is none of it, whatever it is."""
    return sample.ids[:-1] if sample.finish_reason == "stop" else sample.ids


def logprob_entries(found: Any, asked: int | None) -> list[dict[str, Any]] | None:
    """VLLM's log-probabilities as ours: the chosen token is the first of each position."""
    if asked is None or found is None:
        return None
    entries = []
    for position in found:
        chosen = next(iter(position.values()))
        ranked = sorted(position.values(), key=lambda token: token.rank)
        top = {token.decoded_token: _number(token.logprob) for token in ranked[:asked]}
        entries.append(
            {
                "token": chosen.decoded_token,
                "logprob": _number(chosen.logprob),
                "top": top,
            }
        )
    return entries


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
