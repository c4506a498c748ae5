"""What a job asks for beside texts: `[embed]`, `[classify]`, `[score]`; a field's docstring is its documentation.

Promises: settings that contradict each other never pass.
Knows nothing of: engines, tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rowmill.part import Part

Kind = Literal["auto", "generate", "chat", "embed", "classify", "score", "rerank"]
TEXT_KINDS = ("auto", "generate", "chat")
"""Kinds whose answers are texts."""
PAIR_KINDS = ("score", "rerank")
"""Kinds whose rows are a query and what it is held against."""


class EmbedConfig(Part):
    """`[embed]`: how a text becomes a vector."""

    pooling: Literal["auto", "mean", "cls", "last"] = "auto"
    """How the vectors of a text's tokens become one: their mean, the first token's, or the last one's.
    `auto`: as the model's own files say. An endpoint pools as it was started."""
    normalise: bool | None = None
    """Bring each vector to length 1. None: as the model's own files say; of an endpoint, as it comes."""
    dimensions: int | None = Field(default=None, gt=0)
    """Keep so many numbers of each vector, the first ones, brought to length 1 again: for models that were trained so
    (Matryoshka). None: all."""
    prefix: str = ""
    """Put before each text, and before each chunk of a long one, as `query: ` or an instruction."""
    overlap: int = Field(default=0, ge=0)
    """Tokens that neighbouring chunks share, with `validate.too_long = "chunk"`."""


class ClassifyConfig(Part):
    """`[classify]`: which labels a row may get, and what is scored for each."""

    labels: tuple[str, ...] = ()
    """Labels that a language model weighs: how likely is each as the whole answer to the row's prompt. Empty, and
    `texts` too: the model has a head for classes, and its files name them."""
    texts: dict[str, str] = Field(default={})
    """Label -> what the model would say for it, where that is not the label itself, as `{pos = " good"}`.
    Without `labels`, these are the labels."""
    end: str | None = None
    """Text that ends an answer and is weighed with each label, so that `no` is not also the beginning of `not sure`.
    None: the token with which the model ends its answers. Empty: nothing, for labels of which none begins another."""
    activation: Literal["auto", "softmax", "sigmoid", "none"] = "auto"
    """Of a model with a head: how its numbers become probabilities. `auto`: as its files say."""

    @field_validator("labels", mode="before")
    @classmethod
    def _one_string_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _labels_are_a_set(self) -> ClassifyConfig:
        unknown = sorted(set(self.texts) - set(self.labels)) if self.labels else []
        if unknown:
            msg = f"`texts` has `{unknown[0]}`, which is not among `labels`"
            raise ValueError(msg)
        names = self.names
        if len(set(names)) < len(names) or "" in names:
            msg = "`labels` holds a label twice, or an empty one"
            raise ValueError(msg)
        if len(names) == 1:
            msg = "`labels` has one label, expected two at least: one alone is always right"
            raise ValueError(msg)
        said = [text for _, text in self.said()]
        if "" in said or len(set(said)) < len(said):
            msg = "`texts` holds an empty text, or makes two labels the same"
            raise ValueError(msg)
        if names and self.activation != "auto":
            msg = "`activation` is for models with a head; leave it out beside `labels`"
            raise ValueError(msg)
        if self.end is not None and not names:
            msg = "`end` goes with `labels`"
            raise ValueError(msg)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """All labels, in the order of the job; none where the model has them."""
        return self.labels or tuple(self.texts)

    def said(self) -> list[tuple[str, str]]:
        """Each label with what the model would say for it."""
        return [(label, self.texts.get(label, label)) for label in self.names]


class ScoreConfig(Part):
    """`[score]`: where the two sides of a pair stand, with `kind` `score` or `rerank`."""

    query: str = "query"
    """Column that holds the query."""
    document: str = "document"
    """Column that holds what is held against it, with `kind = "score"`."""
    documents: str = "documents"
    """Column that holds a list of texts, with `kind = "rerank"`."""
    top_n: int | None = Field(default=None, gt=0)
    """With `rerank`: so many places of the ranking. None: all. Scores are those of all documents in any case."""
    activation: Literal["auto", "sigmoid", "none"] = "auto"
    """`sigmoid` brings a score between 0 and 1, `none` leaves it as the model gives it. `auto`: as its files say, else
    `sigmoid`. An endpoint scores as it was started."""


def refuse_to_sort(said: Mapping[str, Any], sort: str) -> None:
    """See that only prompts are sorted; `said`: a job's settings by name.

    Raises:
        ValueError: its rows are no prompts.
    """
    kind, classify = said.get("kind", "auto"), said.get("classify")
    is_prompt = kind in TEXT_KINDS or bool(classify and kind == "classify" and classify.names)
    if sort == "input" and not is_prompt:
        msg = f'`sort = "input"` is for prompts that begin alike; leave it out of a job of kind `{kind}`'
        raise ValueError(msg)


def asked_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """What an engine is told of a job's kind, by the names of its own fields."""
    kind = said.get("kind")
    return {
        "embed": said.get("embed") if kind == "embed" else None,
        "classify": said.get("classify") if kind == "classify" else None,
        "score": said.get("score") if kind in PAIR_KINDS else None,
        "ranks": kind == "rerank",
    }
