"""Rows on their way in, outcomes on their way out -> outcomes judged by the rule that their row is held to.

Promises: adapters need not know of it; a row without `schema`, `regex` or `choices` costs nothing;
a broken rule is recorded, the row stays ok; neither reasoning before an answer nor tool calls are judged;
which images and audio a row was asked with is told with its outcome.
Knows nothing of: rules (see `rowmill.answers`), channels.
Memory: a number and a reference for each row in flight that is held to something.
"""

from __future__ import annotations

import msgspec

from rowmill.answers import Finding, Rule, rule_of
from rowmill.config import EngineConfig
from rowmill.engines.thoughts import NO_ANSWER, Thoughts
from rowmill.engines.vectors import Vectors
from rowmill.engines.verdicts import Verdicts
from rowmill.rows import Choice, Limits, Outcome, Prompts

_NOT_JUDGED = frozenset(("tool_calls", "function_call"))


def judge_of(engine: EngineConfig, limits: Limits, thoughts: Thoughts | None = None) -> Judge:
    """The judge of an open engine.

    Raises:
        ConfigError: Its vectors are not what the job wants.
    """
    if engine.embed is not None:
        return Judge(Vectors(engine.embed, limits))
    return Judge(None if engine.is_asked_for_texts else Verdicts(engine, limits), thoughts)


class Judge:
    """One thread expects, another judges."""

    def __init__(
        self, numbers: Vectors | Verdicts | None = None, thoughts: Thoughts | None = None
    ) -> None:
        """A judge of one engine's answers.

        Args:
            numbers: looks at them where they are no texts.
            thoughts: where reasoning is to be told from them.
        """
        self._thoughts = thoughts
        self._rules: dict[int, Rule] = {}
        self._numbers = numbers
        self._cut_from: dict[int, int] = {}
        self._media: dict[int, list[str]] = {}

    def limits(self, limits: Limits) -> Limits:
        """The engine's limits, as they are for those behind this."""
        if self._numbers is None:
            return limits
        return msgspec.structs.replace(limits, dimensions=self._numbers.dimensions)

    def expect(self, prompts: Prompts) -> None:
        """Note the rules of rows, before the engine has them, and which of them were cut."""
        # By key: a slice has what is there of all that it was cut from.
        if prompts.cut_from:
            self._cut_from |= {
                key: prompts.cut_from[key] for key in prompts.keys if key in prompts.cut_from
            }
        if prompts.media:
            self._media |= {
                key: [f"sha256:{one.digest}" for one in prompts.media[key]]
                for key in prompts.keys
                if key in prompts.media
            }
        rules = [rule_of(sampling) for sampling in prompts.samplings]
        if not any(rules):
            return
        for key, i in zip(prompts.keys, prompts.sampling_of, strict=True):
            rule = rules[i]
            if rule is not None:
                self._rules[key] = rule

    def judged(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The same outcomes, those of rows with a rule judged by it, and numbers looked at."""
        if self._numbers is not None:
            return list(map(self._told_cut, self._numbers.judged(outcomes)))
        if self._media:
            outcomes = list(map(self._shown, outcomes))
        if self._thoughts is not None:
            outcomes = list(map(self._thoughts.told_apart, outcomes))
        return list(map(self._judged, outcomes)) if self._rules else outcomes

    def _shown(self, outcome: Outcome) -> Outcome:
        found = self._media.pop(outcome.key, None)
        return outcome if found is None else msgspec.structs.replace(outcome, media=found)

    def _told_cut(self, outcome: Outcome) -> Outcome:
        tokens = self._cut_from.pop(outcome.key, None)
        if tokens is None:
            return outcome
        reason = "length" if outcome.status == "ok" else outcome.finish_reason
        return msgspec.structs.replace(outcome, cut_from=tokens, finish_reason=reason)

    def _judged(self, outcome: Outcome) -> Outcome:
        rule = self._rules.pop(outcome.key, None)
        if rule is None or outcome.status != "ok":
            return outcome
        is_none = outcome.reasoning is not None and not outcome.tool_calls
        if outcome.text is not None:
            found = _finding(rule, outcome.text, outcome.finish_reason)
        else:
            found = Finding(violation=NO_ANSWER if is_none else None)
        return msgspec.structs.replace(
            outcome,
            parsed=found.parsed,
            violation=found.violation,
            choices=[_judged_choice(rule, choice) for choice in outcome.choices],
        )


def _judged_choice(rule: Rule, choice: Choice) -> Choice:
    if choice.reasoning is not None and not choice.text and not choice.tool_calls:
        return msgspec.structs.replace(choice, violation=NO_ANSWER)
    found = _finding(rule, choice.text, choice.finish_reason)
    return msgspec.structs.replace(choice, parsed=found.parsed, violation=found.violation)


def _finding(rule: Rule, text: str, finish_reason: str) -> Finding:
    if finish_reason in _NOT_JUDGED:
        return Finding()
    return rule.judge(text, finish_reason)
