"""Labels in tokens: what is refused, and the tree that engines ask along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import ConfigError
from rowmill.kinds_config import ClassifyConfig
from rowmill.tokens.byte_tokens import ByteTokenizer
from rowmill.tokens.labels import Labels, encode_labels

LABELS = st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=8, unique=True)


def asked(*labels: str, **more: Any) -> ClassifyConfig:
    return ClassifyConfig(labels=labels, **more)


def test_tokens_are_those_of_the_label_and_the_end() -> None:
    labels = encode_labels(asked("no", "not sure", end="\n"), ByteTokenizer())

    assert labels.ids == (tuple(b"no\n"), tuple(b"not sure\n"))
    assert labels.longest == 9


def test_text_of_a_label_is_what_is_encoded() -> None:
    said = ClassifyConfig(labels=("pos", "neg"), texts={"pos": " good"}, end="")

    assert encode_labels(said, ByteTokenizer()).ids == (tuple(b" good"), tuple(b"neg"))


@pytest.mark.parametrize(
    ("labels", "more", "words"),
    [
        (("no", "not sure"), {"end": ""}, "`no` begins `not sure`"),
        (("a", "ab"), {"end": "b"}, "`a` and the end after it begin `ab`"),
        (("yes", "no"), {}, "`classify.end` is not set"),
    ],
)
def test_labels_that_cannot_be_told_apart_are_refused(
    labels: tuple[str, ...], more: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        encode_labels(asked(*labels, **more), ByteTokenizer())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"labels": ("one",)}, "one label"),
        ({"labels": ("a", "a")}, "twice"),
        ({"labels": ("a", "b"), "texts": {"c": "x"}}, "`c`, which is not among"),
        ({"labels": ("a", "b"), "texts": {"a": "b"}}, "two labels the same"),
        ({"end": "x"}, "`end` goes with"),
        ({"labels": ("a", "b"), "activation": "sigmoid"}, "`activation`"),
    ],
)
def test_sets_that_are_none_are_refused(said: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ClassifyConfig(**said)


@given(LABELS)
def test_sums_along_the_tree_are_those_of_each_label_alone(names: list[str]) -> None:
    labels: Labels = encode_labels(asked(*names, end="\0\0"), ByteTokenizer())
    nodes = labels.nodes()

    def weight(path: tuple[int, ...], token: int) -> float:
        return -float(hash((path, token)) % 1000) / 7

    told = {
        path: {token: weight(path, token) for token in next_} for path, next_ in nodes.items()
    }
    alone = [sum(weight(ids[:at], ids[at]) for at in range(len(ids))) for ids in labels.ids]

    np.testing.assert_allclose(alone, labels.sums(told))
    assert next(iter(nodes)) == ()
    assert len(nodes) == len({ids[:at] for ids in labels.ids for at in range(len(ids))})
