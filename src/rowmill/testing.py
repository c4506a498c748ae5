"""For authors of engine plugins: one test that an adapter keeps the contract.

    def test_my_engine_keeps_the_contract():
        check_engine(my_package.my_engine, EngineConfig(name="mine"), rows=my_rows())

Promises: what fails is named in a sentence; the engine is opened in the process of the test.
Knows nothing of: any one adapter.
Memory: the rows given.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

import msgspec
import numpy as np

from rowmill.config import EngineConfig
from rowmill.rows import Limits, Outcome, Prompts

_NONE_NOW = Prompts([], np.empty(0, np.uint32), np.empty(0, np.int64), [], [], [], [], [])
_UNKNOWN = "no_such_setting_anywhere"
_PATIENCE_S = 120.0


class BrokenContract(AssertionError):
    """An adapter does not do what `rowmill.engines.protocol` says."""


class ScriptedFeed:
    """A feed that gives batches one by one, and the end only when every row before it is answered.

    An engine that waits for a full house, or for the end, before it answers stands still with it.
    """

    def __init__(self, batches: list[Prompts]) -> None:
        self._batches = deque(batches)
        self._open: set[int] = set()
        self._changed = threading.Condition()
        self.has_ended = False
        """Whether the engine was told that no more will come."""

    def take(self, *, wait: bool) -> Prompts | None:
        """See `protocol.Feed`.

        Raises:
            BrokenContract: The engine waits for more although it holds rows, and answers none of them.
        """
        with self._changed:
            if self._batches:
                prompts = self._batches.popleft()
                self._open.update(prompts.keys)
                return prompts
            if wait and not self._changed.wait_for(lambda: not self._open, _PATIENCE_S):
                text = "the engine waits for rows without answering those it took"
                raise BrokenContract(text)
            if self._open:
                return _NONE_NOW
            self.has_ended = True
            return None

    def answered(self, outcomes: list[Outcome]) -> None:
        """Note rows as answered."""
        with self._changed:
            self._open.difference_update(outcome.key for outcome in outcomes)
            self._changed.notify_all()


def check_engine(adapter: Any, engine: EngineConfig, *, rows: Prompts) -> list[Outcome]:
    """Run `rows` through an adapter and see that it keeps the contract.

    Args:
        adapter: The module that is registered: `open`, and `declare` and `check_options` where it has them.
        engine: Settings that open it.
        rows: At least four rows; they may be rows that it refuses.

    Returns:
        The outcomes by key, for checks of the author's own.

    Raises:
        BrokenContract: It does not.
    """
    _check_settings(adapter, engine)
    opened = adapter.open(engine)
    try:
        _check_limits(opened.limits, rows)
        middle = len(rows) // 2
        feed = ScriptedFeed(
            [rows.slice(0, 1), rows.slice(1, middle), rows.slice(middle, len(rows))]
        )
        outcomes: list[Outcome] = []
        for some in opened.run(feed):
            outcomes += some
            feed.answered(some)
    finally:
        opened.close()
    _require(feed.has_ended, "`run` ended before the feed did")
    _check_outcomes(outcomes, rows, embeds=engine.embed is not None)
    return sorted(outcomes, key=lambda outcome: outcome.key)


def _check_settings(adapter: Any, engine: EngineConfig) -> None:
    if hasattr(adapter, "check_options"):
        _require(
            adapter.check_options(engine) == [], "`check_options` objects to good settings"
        )
        wrong = engine.model_copy(deep=True)
        wrong = EngineConfig.model_validate({**wrong.model_dump(), _UNKNOWN: 1})
        found = adapter.check_options(wrong)
        names_it = any(_UNKNOWN in mistake for mistake in found)
        _require(names_it, "`check_options` lets an unknown setting pass")
    if hasattr(adapter, "declare"):
        declared = adapter.declare(engine)
        _require(isinstance(declared, Limits), "`declare` does not return `Limits`")


def _check_limits(limits: Limits, rows: Prompts) -> None:
    _require(limits.seats > 0, "`limits.seats` is not above 0")
    has_wires = len(rows.wires) == len(rows)
    fits = limits.takes == "ids" or has_wires
    _require(fits, "`limits.takes` is `wire`: give `check_engine` rows with `wires`")


def _check_outcomes(outcomes: list[Outcome], rows: Prompts, *, embeds: bool) -> None:
    counts = Counter(outcome.key for outcome in outcomes)
    lost = [key for key in rows.keys if not counts[key]]
    _require(not lost, f"{len(lost)} rows got no outcome, key {lost[:1]} first")
    doubled = [key for key, count in counts.items() if count > 1]
    _require(
        not doubled, f"{len(doubled)} rows got more than one outcome, key {doubled[:1]} first"
    )
    foreign = sorted(set(counts) - set(rows.keys))
    _require(not foreign, f"outcomes came for keys that were not given: {foreign[:3]}")
    for outcome in outcomes:
        _check_outcome(outcome, embeds=embeds)


def _check_outcome(outcome: Outcome, *, embeds: bool) -> None:
    place = f"key {outcome.key}:"
    is_whole = _survives_json(outcome)
    _require(
        is_whole, f"{place} the outcome does not survive JSON: a float that is not finite?"
    )
    _require(outcome.attempts >= 1, f"{place} `attempts` is 0")
    _require(outcome.seconds >= 0, f"{place} `seconds` is negative")
    indices = [choice.index for choice in outcome.choices]
    _require(indices == sorted(indices), f"{place} `choices` are not in index order")
    if outcome.status == "ok":
        if embeds:
            has_vector = bool(outcome.embedding or outcome.chunks)
            _require(has_vector, f"{place} answered, but without a vector")
        else:
            _require(outcome.text is not None, f"{place} answered, but `text` is null")
        has_error = bool(outcome.error or outcome.error_kind)
        _require(not has_error, f"{place} answered, but with an error")
    else:
        has_words = bool(outcome.error and outcome.error_kind)
        _require(has_words, f"{place} failed without `error_kind` or `error`")
        _require("\n" not in (outcome.error or ""), f"{place} `error` is more than one line")


def _survives_json(outcome: Outcome) -> bool:
    try:
        return msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome
    except msgspec.ValidationError:
        return False


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise BrokenContract(otherwise)
