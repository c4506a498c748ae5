"""`[reasoning]`: how what a model says to itself is told from its answer.

Promises: tags that could not be found never pass.
Knows nothing of: engines, rows.
"""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from rowmill.part import Part


class ReasoningConfig(Part):
    """`[reasoning]`: for engines and endpoints that do not tell a model's reasoning from its answer themselves."""

    tags: tuple[str, ...] = ()
    """The two texts that a model puts around its reasoning, as `["<think>", "</think>"]`: what stands between them goes
    into a column of its own. Empty: an answer is taken as it comes."""
    begins: Literal["answer", "prompt"] = "answer"
    """Where the first of the tags stands: in the answer; or at the end of the prompt already, where the chat template puts
    it: then an answer without the second tag is reasoning that was cut."""

    @field_validator("tags")
    @classmethod
    def _are_two(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if tags and (len(tags) != 2 or not all(tags) or tags[0] == tags[1]):
            msg = 'holds not two different texts; give them as `["<think>", "</think>"]`'
            raise ValueError(msg)
        return tags

    @model_validator(mode="after")
    def _begins_goes_with_tags(self) -> ReasoningConfig:
        if self.begins == "prompt" and not self.tags:
            msg = '`begins = "prompt"` goes with `tags`; name them'
            raise ValueError(msg)
        return self
