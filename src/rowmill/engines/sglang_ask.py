"""A row -> what SGLang is asked, and its answer -> an Outcome.

Promises: a choice is never cut by `max_tokens`; counts are over all samples; no two samples of a row draw with one seed.
Knows nothing of: SGLang's classes, threads.
Memory: none kept.
Source: SGLang 0.5.12 to 0.5.23, `sampling/sampling_params.py`, `managers/tokenizer_manager.py`, `managers/schedule_batch.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines import outcome_of
from rowmill.engines.prompt import row_seed
from rowmill.rows import Ids, Outcome, Sampling

_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
_GREEDY_BELOW = 1e-5
_FIRST_THEN_EACH = 16
"""Tokens between what is told of a row that others wait for: its first token is all that is of use."""
_BAD_REQUEST = 400
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
"""What a regular expression means otherwise. `re.escape` writes more escapes, which xgrammar warns of one by one."""
MOST_WORDS = 400
"""Of SGLang's own words in an error."""


class Row(msgspec.Struct, gc=False):
    """A row while SGLang has it."""

    key: int
    ids: Ids
    max_tokens: int
    """As asked; 0 for none."""
    room: int
    """Most tokens to generate for one sample."""
    sampling: Sampling
    began: float
    attempts: int = 1

    @property
    def num_samples(self) -> int:
        """Samples that are asked; greedy ones are equal, and asked once."""
        heat = self.sampling.temperature
        return 1 if heat is not None and heat < _GREEDY_BELOW else self.sampling.n


class Answer(msgspec.Struct):
    """One sample as it comes from SGLang."""

    ids: list[int]
    finish_reason: str
    text: str
    prompt_tokens: int
    cached_tokens: int
    logprobs: list[dict[str, Any]] | None = None


def parameters(row: Row, *, sample: int) -> dict[str, Any]:
    """`sampling_params` of one sample of a row."""
    sampling = row.sampling
    asked: dict[str, Any] = {
        name: value for name in _FIELDS if (value := getattr(sampling, name)) is not None
    }
    if asked.get("top_k") == 0:
        del asked["top_k"]  # all tokens, which SGLang writes as -1
    asked |= {
        "max_new_tokens": row.room,
        "ignore_eos": bool(sampling.ignore_eos),
        "stream_interval": _FIRST_THEN_EACH,
    }
    if sampling.stop:
        asked["stop"] = list(sampling.stop)
    if (seed := _seed(row)) is not None:
        asked["sampling_seed"] = (seed + sample) & 0x7FFFFFFF
    if sampling.choices:
        asked["regex"] = "|".join(f"({_literally(choice)})" for choice in sampling.choices)
    elif sampling.schema:
        asked["json_schema"] = sampling.schema
    elif sampling.regex:
        asked["regex"] = sampling.regex
    return asked


def _seed(row: Row) -> int | None:
    """Of its first sample. A row with several needs one: SGLang draws all that have none with the same."""
    sampling = row.sampling
    if sampling.seed_per_row:
        return row_seed(row.key, sampling.seed)
    if sampling.seed is None and row.num_samples > 1:
        return row_seed(row.key, 0)
    return sampling.seed


def _literally(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def answer_of(found: Mapping[str, Any], sampling: Sampling) -> Answer:
    """What SGLang said.

    Raises:
        Refused: it does not take the row.
        GaveUp: it ended the row without an answer.
    """
    about = found["meta_info"]
    reason = about.get("finish_reason") or {}
    kind = str(reason.get("type"))
    if kind == "abort":
        message = str(reason.get("message") or "no reason given")
        words = f"SGLang ended the row: {' '.join(message.split())[:MOST_WORDS]}"
        if reason.get("status_code") == _BAD_REQUEST:
            raise errors.Refused(reason=words)
        raise errors.GaveUp(reason=words)
    return Answer(
        ids=list(found["output_ids"]),
        finish_reason=kind,
        text=str(found.get("text") or ""),
        prompt_tokens=int(about.get("prompt_tokens") or 0),
        cached_tokens=int(about.get("cached_tokens") or 0),
        logprobs=_logprobs(about, sampling.logprobs),
    )


def answered(row: Row, answers: Sequence[Answer]) -> Outcome:
    """The outcome of a row with its samples."""
    choices = [
        outcome_of.choice_of(
            index, one.text, one.finish_reason, row.sampling, ids=one.ids, logprobs=one.logprobs
        )
        for index, one in enumerate(answers)
    ]
    return outcome_of.answered(
        row,
        choices,
        output_tokens=sum(len(one.ids) for one in answers),
        cached_tokens=min(len(row.ids), answers[0].cached_tokens),
        attempts=row.attempts,
    )


def failed(row: Row, error: errors.RowError) -> Outcome:
    """The outcome of a row that gets no answer."""
    return outcome_of.failed(row, error, attempts=row.attempts)


def _logprobs(about: Mapping[str, Any], asked: int | None) -> list[dict[str, Any]] | None:
    """SGLang's (log-probability, id, text) as ours: the chosen token is the first of each position."""
    chosen = about.get("output_token_logprobs")
    if asked is None or chosen is None:
        return None
    tops = about.get("output_top_logprobs") or [[]] * len(chosen)
    return [
        {
            "token": token,
            "logprob": value,
            "top": {text: number for number, _, text in (top or [])[:asked]},
        }
        for (value, _, token), top in zip(chosen, tops, strict=False)
    ]
