"""`[answer]`: how the text of an answer is read.

Promises: tags that could not be found never pass.
Knows nothing of: engines, rows.
"""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from rowmill.part import Part


class AnswerConfig(Part):
    """`[answer]`: what of an answer is the answer, and what the reasoning before it."""

    think_tags: tuple[str, ...] = ()
    """The two texts that a model puts around its reasoning, as `["<think>", "</think>"]`: what stands between them goes
    into a column of its own. For engines and endpoints that do not part the two themselves."""
    think_from: Literal["answer", "prompt"] = "answer"
    """Where the first of the tags stands: in the answer; or at the end of the prompt already, where the chat template puts
    it: then an answer without the second tag is reasoning that was cut."""

    @field_validator("think_tags")
    @classmethod
    def _are_two(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if tags and (len(tags) != 2 or not all(tags) or tags[0] == tags[1]):
            msg = 'holds not two different texts; give them as `["<think>", "</think>"]`'
            raise ValueError(msg)
        return tags

    @model_validator(mode="after")
    def _from_goes_with_tags(self) -> AnswerConfig:
        if self.think_from == "prompt" and not self.think_tags:
            msg = '`think_from = "prompt"` goes with `think_tags`; name them'
            raise ValueError(msg)
        return self
