"""The steps of the contract suite: rows to give, and what must be so of their outcomes.

Promises: each step's rows have keys of their own; rows that the author gave come first, as they are.
Knows nothing of: threads, feeds, adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rowmill.rows import Limits, Outcome, Prompts, Sampling
from rowmill.testing.broken import require
from rowmill.testing.feed import Script
from rowmill.testing.outcomes import check_outcome, check_outcomes

_GREEDY = Sampling(temperature=0)
_FEW_TOKENS = 6
_STEP_KEYS = 1 << 20
_NO_TOKEN = 2**31 - 1
_NEAR, _NEAR_LENGTH = 0.999, 0.05
_LONG = 200_000
"""A context over this is not tried with a row that is longer."""


def script(
    rows: Prompts, limits: Limits, *, agree: float, answers: list[Outcome], embeds: bool
) -> Script:
    """All steps; `answers` gets the outcomes of the author's own rows."""
    middle = len(rows) // 2
    parts = [rows.slice(0, 1), rows.slice(1, middle), rows.slice(middle, len(rows))]
    answers += yield parts, False
    check_outcomes(answers, rows, limits, embeds=embeds)
    status_of = {outcome.key: outcome.status for outcome in answers}
    good = rows.take([i for i, key in enumerate(rows.keys) if status_of[key] == "ok"])
    if embeds and len(good):
        yield from _vectors(good, limits, agree)
    elif len(good):
        yield from _steps(good, limits, agree)
    yield ([_asked(rows, _keys_of(9), [_GREEDY])], True)


def _vectors(good: Prompts, limits: Limits, agree: float) -> Script:
    """Of engines that embed: the same vector again, beside other rows."""
    given = [_asked(good, _keys_of(step), [_GREEDY]) for step in (1, 2)]
    together = _by_key((yield [given[0]], False))
    single = [given[1].slice(i, i + 1) for i in range(len(good))]
    alone = _by_key((yield single, False))
    for outcome in [*together, *alone]:
        check_outcome(outcome, embeds=True)
    check_outcomes(alone, given[1], limits, embeds=True)
    same = [_is_near(a, b) for a, b in zip(together, alone, strict=True)]
    share = sum(same) / len(same)
    words = f"{share:.0%} of {len(same)} vectors were the same again, expected {agree:.0%}"
    require(share >= agree, "company", words)


def _is_near(one: Outcome, other: Outcome) -> bool:
    """Whether the numbers of two outcomes point the same way, and are as long."""
    a, b = (np.frombuffer(_numbers(outcome), "<f4").astype(float) for outcome in (one, other))
    if len(a) != len(b):
        return False
    lengths = np.linalg.norm(a), np.linalg.norm(b)
    points_alike = bool(a @ b >= _NEAR * lengths[0] * lengths[1])
    return points_alike and bool(abs(lengths[0] - lengths[1]) <= _NEAR_LENGTH * max(lengths))


def _numbers(outcome: Outcome) -> bytes:
    own = outcome.embedding if isinstance(outcome.embedding, bytes) else b""
    return own or b"".join(chunk.embedding for chunk in outcome.chunks or ())


def _steps(good: Prompts, limits: Limits, agree: float) -> Script:
    greedy = _asked(good, _keys_of(1), [_GREEDY])
    first = _by_key((yield [greedy], False))
    check_outcomes(first, greedy, limits)
    order = list(range(len(good)))[::-1]
    again = _asked(good.take(order), _keys_of(2), [_GREEDY])
    single = [again.slice(i, i + 1) for i in range(len(again))]
    second = _by_key((yield single, False))[::-1]
    alone = _asked(good.slice(0, 1), _keys_of(3), [_GREEDY])
    third = yield [alone], False
    _check_company([*first, first[0]], [*second, *third], agree)
    yield from _stops(good, first, limits, agree)
    yield from _lengths(good, limits)
    yield from _declared(good, limits)
    if limits.takes == "ids":
        yield from _faults(good, limits)


def _check_company(first: list[Outcome], second: list[Outcome], agree: float) -> None:
    same = [a.text == b.text for a, b in zip(first, second, strict=True)]
    share = sum(same) / len(same)
    words = (
        f"{share:.0%} of {len(same)} greedy answers were the same again, expected {agree:.0%}"
    )
    require(share >= agree, "company", words)


def _stops(good: Prompts, first: list[Outcome], limits: Limits, agree: float) -> Script:
    texts = [outcome.text or "" for outcome in first]
    chosen = [i for i, text in enumerate(texts) if len(text) > 1 and text.isprintable()]
    if not chosen:
        return
    stops = [texts[i][len(texts[i]) // 2 :][:2] for i in chosen]
    samplings = [Sampling(temperature=0, stop=(stop,)) for stop in stops]
    asked = _asked(good.take(chosen), _keys_of(4), samplings)
    found = _by_key((yield [asked], False))
    check_outcomes(found, asked, limits)
    num_cut = 0
    for i, outcome, stop in zip(chosen, found, stops, strict=True):
        place = f"key {outcome.key}, stop string of {len(stop)} characters:"
        require(stop not in (outcome.text or ""), "stop", f"{place} it is in the answer")
        # Another answer than before need not meet the string: company can change one, and `agree` says how often.
        is_cut = outcome.text == texts[i].partition(stop)[0]
        is_said = outcome.finish_reason == "stop"
        wrong = f"{place} `finish_reason` is `{outcome.finish_reason}`"
        require(is_said or not is_cut, "stop", wrong)
        num_cut += is_said
    share = num_cut / len(chosen)
    words = (
        f"{share:.0%} of {len(chosen)} answers ended at their stop string, expected {agree:.0%}"
    )
    require(share >= agree, "stop", words)


def _lengths(good: Prompts, limits: Limits) -> Script:
    asked = _asked(good, _keys_of(5), [_GREEDY])
    asked.max_tokens[:] = [1 + i % 3 for i in range(len(asked))]
    found = _by_key((yield [asked], False))
    check_outcomes(found, asked, limits)


def _declared(good: Prompts, limits: Limits) -> Script:
    """What the engine says it does beyond the common settings."""
    asked = {name: sampling for name, sampling in _ASKED.items() if name in limits.sampling}
    if not asked:
        return
    rows = good.take([i % len(good) for i in range(len(asked))])
    given = _asked(rows, _keys_of(6), list(asked.values()))
    given.max_tokens[:] = [2] * len(asked)
    found = _by_key((yield [given], False))
    for name, outcome in zip(asked, found, strict=True):
        check_outcome(outcome)
        is_done = outcome.status == "ok" and _DONE[name](outcome)
        require(is_done, "sampling", f"`{name}` is named in `limits.sampling` and not done")


def _choice_ids(outcome: Outcome) -> bool:
    ids = outcome.choices[0].token_ids if outcome.choices else None
    return ids is not None and len(ids) == outcome.output_tokens


_ASKED = {
    # Without a seed: an engine may refuse one beside samples that are drawn, and say so.
    "n": Sampling(temperature=1.0, n=2),
    "return_token_ids": Sampling(temperature=0, return_token_ids=True),
    "logprobs": Sampling(temperature=0, logprobs=2),
    "choices": Sampling(temperature=0, choices=("yes", "no")),
    "ignore_eos": Sampling(temperature=0, ignore_eos=True),
}
_DONE: dict[str, Any] = {
    "n": lambda outcome: len(outcome.choices) == 2,
    "return_token_ids": _choice_ids,
    "logprobs": lambda outcome: bool(outcome.choices and outcome.choices[0].logprobs),
    "choices": lambda outcome: outcome.text in ("yes", "no"),
    "ignore_eos": lambda outcome: outcome.finish_reason == "length",
}


def _faults(good: Prompts, limits: Limits) -> Script:
    """Rows that cannot be computed, a good one between each two."""
    fine = next(good.row_ids())
    bad = [np.empty(0, np.uint32), np.array([_NO_TOKEN], np.uint32)]
    if 0 < limits.max_model_tokens <= _LONG:
        bad.append(np.resize(fine, limits.max_model_tokens + 1))
    parts = [fine]
    for ids in bad:
        parts += [ids, fine]
    start = _keys_of(7)
    asked = Prompts(
        keys=list(range(start, start + len(parts))),
        ids=np.concatenate(parts),
        stops=np.cumsum([len(part) for part in parts], dtype=np.int64),
        max_tokens=[_FEW_TOKENS] * len(parts),
        samplings=[_GREEDY],
        sampling_of=[0] * len(parts),
        wires=[],
        wire_fields=[],
    )
    found = _by_key((yield [asked], False))
    for outcome in found:
        check_outcome(outcome)
    lost = [outcome.status for outcome in found[::2] if outcome.status != "ok"]
    require(not lost, "faults", f"{len(lost)} good rows beside bad ones were not answered")


def _keys_of(step: int) -> int:
    """The first key of a step."""
    return step * _STEP_KEYS


def _asked(rows: Prompts, first_key: int, samplings: Sequence[Sampling]) -> Prompts:
    """The rows under new keys; `samplings` is one for all, or one a row."""
    number = len(rows)
    return Prompts(
        keys=list(range(first_key, first_key + number)),
        ids=rows.ids,
        stops=rows.stops,
        max_tokens=[_FEW_TOKENS] * number,
        samplings=list(samplings),
        sampling_of=list(range(number)) if len(samplings) > 1 else [0] * number,
        wires=rows.wires,
        wire_fields=rows.wire_fields,
        pieces=_renamed(rows.pieces, rows.keys, first_key),
        pairs=_renamed(rows.pairs, rows.keys, first_key),
    )


def _renamed(by_key: dict[int, Any], keys: list[int], first_key: int) -> dict[int, Any]:
    return {first_key + at: by_key[key] for at, key in enumerate(keys) if key in by_key}


def _by_key(outcomes: list[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=lambda outcome: outcome.key)
