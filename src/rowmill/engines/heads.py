"""A model's config.json -> its head: which classes it tells apart, and how its numbers are to be read.

Promises: a model without a head for classes, or with another number of outputs than the job can use, is a sentence
before it is loaded.
Knows nothing of: libraries.
Source: `id2label` and `problem_type` as transformers 5 reads them; of cross encoders, `activation_fn` under
`sentence_transformers`, or `sbert_ce_default_activation_function`, as sentence-transformers 5 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rowmill.config import EngineConfig

_DEFAULT = ("LABEL_0", "LABEL_1")
"""What transformers takes where config.json names no classes."""


class Head(msgspec.Struct, frozen=True):
    """What stands on top of a model."""

    labels: tuple[str, ...]
    activation: str
    """As in `Limits`."""


def head_of(config: Mapping[str, Any], engine: EngineConfig) -> Head:
    """The head of a model that classifies, or scores pairs."""
    named = config.get("id2label")
    labels: tuple[str, ...] = _DEFAULT
    if isinstance(named, dict) and named:
        labels = tuple(str(named[key]) for key in sorted(named, key=int))
    if engine.score is not None:
        return Head(labels, _of_pairs(config))
    if config.get("problem_type") == "regression":
        return Head(labels, "none")
    is_several = config.get("problem_type") == "multi_label_classification"
    return Head(labels, "sigmoid" if is_several or len(labels) == 1 else "softmax")


def head_mistakes(config: Mapping[str, Any], engine: EngineConfig) -> Iterator[str]:
    """What keeps a model from classifying, or scoring pairs, a sentence each."""
    kinds = [str(name) for name in config.get("architectures") or ()]
    if kinds and not any(name.endswith("ForSequenceClassification") for name in kinds):
        instead = "" if engine.score else "; for a language model give `classify.labels`"
        yield f"`engine.model` is a `{kinds[0]}`, which has no head for classes{instead}"
        return
    number = len(head_of(config, engine).labels)
    if engine.score is not None and number != 1:
        yield f"`engine.model` gives {number} numbers a text; a model that scores pairs gives one"


def _of_pairs(config: Mapping[str, Any]) -> str:
    own = config.get("sentence_transformers")
    told = own.get("activation_fn") if isinstance(own, dict) else None
    told = told or config.get("sbert_ce_default_activation_function") or ""
    return "none" if str(told).endswith("Identity") else "sigmoid"
