"""A job -> its stations' settings, compiled; the parts of its prompt in the order that is best for the cache, where asked.

Promises: an order, or what each row's own goes by, is chosen once, at the start of a run, from its first rows; later starts
take it from the run's identity, and the day that a chat template is told as well.
Knows nothing of: outputs.
Memory: one window of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.executors.identity import identity
from rowmill.kinds_config import TEXT_KINDS, ClassifyConfig
from rowmill.measure import DAY, Measure, has_template, open_measure
from rowmill.pipeline import each
from rowmill.plan import Lever
from rowmill.plan.arrange import MIN_SAVED_SHARE
from rowmill.read import Source, read_rows
from rowmill.rows import Limits, Request
from rowmill.shown.spans import duration
from rowmill.tokens import Tokenizer
from rowmill.validate import Recipe, compile_recipe
from rowmill.validate.fields import FieldOrder, best_order
from rowmill.validate.parts import parts_of
from rowmill.validate.row_orders import RowOrders, Value, written
from rowmill.validate.row_orders import read as read_values

SETTING = "plan.reorder_fields"


class Words(msgspec.Struct, frozen=True):
    """What a job comes to before rows are read: the stations' settings, compiled."""

    job: Job
    limits: Limits
    tokenizer: Tokenizer | None
    recipe: Recipe
    measure: Measure
    values: Sequence[Value] = ()
    """By which each row has an order of its own of the prompt's parts; empty: all have that of the prompt."""


def compiled(
    job: Job,
    limits: Limits,
    tokenizer: Tokenizer | None,
    values: Sequence[Value] = (),
    *,
    day: str = "",
) -> Words:
    """The settings of a job.

    Args:
        day: (ISO) that a chat template is told; empty: today.

    Raises:
        ConfigError: with what is wrong.
    """
    # Behind an endpoint is a server that renders by itself.
    template = limits.takes == "wire" or has_template(job, tokenizer)
    orders = RowOrders(job.prompt, values) if values else None
    recipe = compile_recipe(job, limits=limits, chat_template=template, orders=orders)
    measure = open_measure(job, tokenizer, limits, template_date=day)
    return Words(job, limits, tokenizer, recipe, measure, values)


def identity_of(words: Words) -> dict[str, Any]:
    """What a run of these words is."""
    found = identity(words.job, words.measure)
    return {**found, SETTING: written(words.values)} if words.values else found


def with_field_order(words: Words, source: Source) -> tuple[Words, dict[str, str]]:
    """The words of a new run, its prompt in the best order where that is asked for, and why; else as they are."""
    if not words.job.plan.reorder_fields:
        return words, {}
    found = field_order(words, source)
    if found is None:
        told = "no gain here: the prompt has no two neighbouring lines or paragraphs with columns and words of their own"
        return words, {SETTING: told}
    if found.prompt == words.job.prompt and not found.values:
        return words, {
            SETTING: "no gain here: the parts of the prompt stand as well as they can"
        }
    ordered = _with_prompt(words, found.prompt, found.values)
    return ordered, {SETTING: f"{_worth(found)}; answers can change"}


def as_begun(words: Words, begun_as: Mapping[str, Any]) -> Words:
    """The words of a run that is gone on with: of the day it began, and its prompt in the order it began with."""
    words = _of_day(words, begun_as.get(DAY, ""))
    prompt, own = begun_as.get("prompt", ""), begun_as.get(SETTING, "")
    if not words.job.plan.reorder_fields or (prompt == words.job.prompt and not own):
        return words
    ours, begun = parts_of(words.job.prompt), parts_of(prompt)
    if ours is None or begun is None or sorted(ours.pieces) != sorted(begun.pieces):
        return words
    return _with_prompt(words, prompt, read_values(own))


def field_lever(
    words: Words, source: Source, seconds: Callable[[list[Request]], float]
) -> Lever | None:
    """What another order of the prompt's parts would bring where it is not asked for; None where none can be.

    Args:
        seconds: that a window takes; 0 where that is not known.
    """
    if words.job.plan.reorder_fields or not words.limits.shares_prefixes:
        return None
    found = field_order(words, source)
    if found is None:
        return None
    if found.share - found.share_before < MIN_SAVED_SHARE:
        told = "no gain here: the parts of the prompt stand as well as they can"
        return Lever(name="field order", is_used=False, reason=told)
    ordered = _with_prompt(words, found.prompt, found.values)
    before, after = (seconds(_first_window(way, source)) for way in (words, ordered))
    time = f" and take {duration(after)} instead of {duration(before)}" if after else ""
    told = f"{_worth(found)}{time}; `{SETTING} = true` does it, and answers can change"
    return Lever(name="field order", is_used=False, reason=told, saved_s=before - after)


def field_order(words: Words, source: Source) -> FieldOrder | None:
    """The best order for the first window of rows; None where the prompt has no parts that could change places."""
    job = words.job
    if not job.prompt or parts_of(job.prompt) is None:
        return None
    plain = job.model_copy(update=_plainly(job))
    limits = msgspec.structs.replace(words.limits, takes="ids")
    recipe = compile_recipe(plain, limits=limits, chat_template=False)
    plainly = msgspec.structs.replace(words, recipe=recipe)
    return best_order(job.prompt, _first_window(plainly, source))


def _plainly(job: Job) -> dict[str, Any]:
    """Settings under which a prompt is what its columns say, whatever is made of it behind.

    A kind takes the settings of its answers alone, and a column `sampling` means something where they are texts.
    """
    kind = "generate" if job.kind in TEXT_KINDS else "embed"
    return {"kind": kind, "system": "", "raw": False, "classify": ClassifyConfig()}


def _first_window(words: Words, source: Source) -> list[Request]:
    wanted = words.recipe.wanted
    chunks = (read_rows(shard, wanted=wanted) for shard in source.shards)
    rows = list(islice(_flat(chain.from_iterable(chunks)), words.job.plan.window_rows))
    return each(rows, words.recipe, lambda key, error: None)


def _flat(chunks: Iterator[list[Any]]) -> Iterator[Any]:
    for chunk in chunks:
        yield from chunk


def _with_prompt(words: Words, prompt: str, values: Sequence[Value]) -> Words:
    job = words.job.model_copy(update={"prompt": prompt})
    return compiled(job, words.limits, words.tokenizer, values, day=words.measure.template_date)


def _of_day(words: Words, day: str) -> Words:
    if not day or words.measure.template_date in ("", day):
        return words
    return compiled(words.job, words.limits, words.tokenizer, words.values, day=day)


def _worth(found: FieldOrder) -> str:
    names = ", ".join(f"`{name}`" for name in found.columns)
    order, against = f"in the order {names}", ""
    if found.values:
        order = f"with each row's common values first ({len(found.values):,} are known)"
        against = f", {found.share_of_one:.0%} in the order {names}"
    return (
        f"{order}, rows of a window share {found.share:.0%} of their prompts{against},"
        f" {found.share_before:.0%} as the prompt stands"
    )
