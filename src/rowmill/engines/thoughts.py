"""The text of an answer -> the reasoning at its beginning, and the answer proper, by the tags that a job names.

Promises: nothing is lost but the tags and white space around them; an answer that was cut within its reasoning is none;
what an engine or endpoint has told apart already stays as it is.
Knows nothing of: engines, tokens of an answer: those of reasoning are its text's, encoded again.
Memory: none kept.
Source: vLLM's parsers of models that think between tags (`deepseek_r1`, `qwen3`) part texts at the same places.
"""

from __future__ import annotations

import msgspec

from rowmill.reasoning_config import ReasoningConfig
from rowmill.rows import Choice, Outcome
from rowmill.tokens import Tokenizer

NO_ANSWER = "the answer ended within its reasoning: there is none"


class Thoughts:
    """Parts answers of one engine."""

    def __init__(self, config: ReasoningConfig, tokenizer: Tokenizer | None) -> None:
        """By the tags of `config`, of which there are two; `tokenizer`: the model's, where it is known here."""
        self._tags, self._is_open = config.tags, config.begins == "prompt"
        self._tokenizer = tokenizer

    def told_apart(self, outcome: Outcome) -> Outcome:
        """The outcome with its reasoning apart."""
        if outcome.status != "ok" or outcome.text is None or outcome.reasoning is not None:
            return outcome
        reasoning, text = self.parted(outcome.text)
        choices = [self._choice(choice) for choice in outcome.choices]
        # The first choice stands in `text` as well.
        every = [choice.reasoning for choice in choices] or [reasoning]
        return msgspec.structs.replace(
            outcome,
            text=text,
            reasoning=reasoning,
            reasoning_tokens=self._count([one for one in every if one]),
            choices=choices,
        )

    def parted(self, text: str) -> tuple[str | None, str | None]:
        """Reasoning, and answer; None for what is not there."""
        first, last = self._tags
        begun = text.lstrip()
        if begun.startswith(first):
            begun = begun[len(first) :]
        elif not self._is_open:
            return None, text
        reasoning, end, answer = begun.partition(last)
        return reasoning.strip(), answer.lstrip() if end else None

    def _choice(self, choice: Choice) -> Choice:
        reasoning, text = self.parted(choice.text)
        return msgspec.structs.replace(choice, reasoning=reasoning, text=text or "")

    def _count(self, texts: list[str]) -> int | None:
        if self._tokenizer is None:
            return None
        ids, _ = self._tokenizer.encode_batch(texts, add_special=False) if texts else ((), None)
        return len(ids)


def has_no_answer(text: str, reasoning: str | None, finish_reason: str) -> bool:
    """Whether an answer was cut before its reasoning ended."""
    return reasoning is not None and not text and finish_reason == "length"
