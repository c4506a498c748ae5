"""What must be so of an outcome."""

from __future__ import annotations

import msgspec

from rowmill.rows import Limits, Outcome, Prompts
from rowmill.testing.broken import require

_REASONS = ("stop", "length")


def check_outcomes(
    outcomes: list[Outcome], rows: Prompts, limits: Limits, *, embeds: bool = False
) -> None:
    """See that outcomes have the form of their fate, and fit what their rows asked."""
    lengths = dict(zip(rows.keys, map(len, rows.row_ids()), strict=True))
    most = dict(zip(rows.keys, rows.max_tokens, strict=True))
    several = {
        key: rows.samplings[i].n for key, i in zip(rows.keys, rows.sampling_of, strict=True)
    }
    for outcome in outcomes:
        check_outcome(outcome, embeds=embeds)
        if outcome.status == "ok":
            prompt = lengths[outcome.key] if limits.takes == "ids" else None
            _check_counts(outcome, prompt)
            _check_length(outcome, most[outcome.key], several[outcome.key])


def check_outcome(outcome: Outcome, *, embeds: bool = False) -> None:
    """See that an outcome has the form of its fate."""
    place = f"key {outcome.key}:"
    is_whole = _survives_json(outcome)
    words = f"{place} the outcome does not survive JSON: a float that is not finite?"
    require(is_whole, "form", words)
    require(outcome.attempts >= 1, "form", f"{place} `attempts` is 0")
    require(outcome.seconds >= 0, "form", f"{place} `seconds` is negative")
    indices = [choice.index for choice in outcome.choices]
    is_ordered = indices == list(range(len(indices)))
    require(is_ordered, "form", f"{place} `choices` are not in index order")
    if outcome.status == "ok":
        _check_answer(outcome, place, embeds=embeds)
        has_error = bool(outcome.error or outcome.error_kind)
        require(not has_error, "form", f"{place} answered, but with an error")
    else:
        has_words = bool(outcome.error and outcome.error_kind)
        require(has_words, "form", f"{place} failed without `error_kind` or `error`")
        is_line = "\n" not in (outcome.error or "")
        require(is_line, "form", f"{place} `error` is more than one line")


def _check_answer(outcome: Outcome, place: str, *, embeds: bool) -> None:
    if embeds:
        has_vector = bool(outcome.embedding or outcome.chunks)
        require(has_vector, "form", f"{place} answered, but without a vector")
        return
    require(outcome.text is not None, "form", f"{place} answered, but `text` is null")
    is_known = outcome.finish_reason in _REASONS
    words = f"{place} `finish_reason` is `{outcome.finish_reason}`, expected one of {_REASONS}"
    require(is_known, "form", words)


def _check_counts(outcome: Outcome, prompt: int | None) -> None:
    place = f"key {outcome.key}:"
    if prompt is not None:
        is_so = outcome.prompt_tokens == prompt
        words = f"{place} `prompt_tokens` is {outcome.prompt_tokens}, the row has {prompt}"
        require(is_so, "counts", words)
    is_cached = outcome.cached_tokens <= outcome.prompt_tokens
    require(is_cached, "counts", f"{place} more `cached_tokens` than `prompt_tokens`")
    is_counted = bool(outcome.output_tokens) or not outcome.text
    require(is_counted, "counts", f"{place} a text, and `output_tokens` is 0")


def _check_length(outcome: Outcome, most: int, samples: int) -> None:
    place = f"key {outcome.key}:"
    if not most:
        return
    count = outcome.output_tokens
    words = f"{place} {count} tokens, allowed {most} a sample"
    require(count <= most * samples, "max_tokens", words)
    is_cut = samples == 1 and outcome.finish_reason == "length"
    words = f"{place} `finish_reason` is `length` at {count} of {most} tokens"
    require(not is_cut or count == most, "max_tokens", words)


def _survives_json(outcome: Outcome) -> bool:
    try:
        return msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome
    except msgspec.ValidationError:
        return False
