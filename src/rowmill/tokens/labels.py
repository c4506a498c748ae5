"""Labels of a job -> the tokens a model would say for each, and the tree of their beginnings.

A label is encoded by itself, not together with the prompt: the prompt keeps the ids that it has in a job of kind
`chat`, the same for all labels, so their probabilities are those of one question's answers, and the prompt is computed
once. What ends an answer is weighed with the label, so that `no` is not also all that begins with `no`.

Promises: no two labels have the same tokens, and none begins another.
Knows nothing of: prompts, models.
Memory: a few numbers a label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.errors import ConfigError
from rowmill.kinds_config import ClassifyConfig
from rowmill.tokens.protocol import Tokenizer

Path = tuple[int, ...]
Sums = npt.NDArray[np.float64]


class Labels(msgspec.Struct, frozen=True):
    """A set of labels, encoded."""

    names: tuple[str, ...]
    ids: tuple[Path, ...]
    """Tokens of each, the end's included."""

    @property
    def longest(self) -> int:
        """Most tokens of a label."""
        return max(map(len, self.ids))

    def nodes(self) -> dict[Path, list[int]]:
        """Each beginning of labels, the empty one first -> the tokens that come next in one of them."""
        found: dict[Path, list[int]] = {}
        for ids in sorted(self.ids, key=len):
            for at, token in enumerate(ids):
                children = found.setdefault(ids[:at], [])
                if token not in children:
                    children.append(token)
        return dict(sorted(found.items(), key=lambda node: len(node[0])))

    def sums(self, logprobs: Mapping[Path, Mapping[int, float]]) -> Sums:
        """The log-probability of each label: the sum over its tokens.

        Args:
            logprobs: of each node, those of its children.
        """
        totals = [
            sum(logprobs[ids[:at]][token] for at, token in enumerate(ids)) for ids in self.ids
        ]
        return np.array(totals, np.float64)


def encode_labels(asked: ClassifyConfig, tokenizer: Tokenizer) -> Labels:
    """The labels of a job in the tokens of its model.

    Raises:
        ConfigError: One has no tokens, two have the same, one begins another, or nobody knows what ends an answer.
    """
    texts = [text for _, text in asked.said()]
    ids = _encoded(tokenizer, texts)
    end = _end(asked, tokenizer)
    for label, path in zip(asked.names, ids, strict=True):
        if not path:
            reason = f"`classify.labels`: `{label}` has no tokens in this model's vocabulary"
            raise ConfigError(reason=reason)
    labels = Labels(asked.names, tuple(path + end for path in ids))
    _check_apart(labels, has_end=bool(end))
    return labels


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Path]:
    ids, stops = tokenizer.encode_batch(texts, add_special=False)
    flat, bounds = ids.tolist(), [0, *stops.tolist()]
    return [tuple(flat[start:stop]) for start, stop in pairwise(bounds)]


def _end(asked: ClassifyConfig, tokenizer: Tokenizer) -> Path:
    if asked.end == "":
        return ()
    text = tokenizer.eos if asked.end is None else asked.end
    (path,) = _encoded(tokenizer, [text]) if text else [()]
    if not path:
        reason = (
            "`classify.end` is not set, and the model's files do not say with which token an answer ends;"
            ' set it to a text, as "\\n", or to "" where no label begins another'
        )
        raise ConfigError(reason=reason)
    return path


def _check_apart(labels: Labels, *, has_end: bool) -> None:
    ranked = sorted(zip(labels.ids, labels.names, strict=True))
    for (ids, name), (longer, other) in pairwise(ranked):
        if longer[: len(ids)] != ids:
            continue
        if ids == longer:
            reason = (
                f"`classify.labels`: `{name}` and `{other}` are the same tokens for this model"
            )
        elif has_end:
            reason = f"`classify.labels`: `{name}` and the end after it begin `{other}`; set another `classify.end`"
        else:
            reason = f'`classify.labels`: `{name}` begins `{other}`; `classify.end = ""` weighs no end, so set one'
        raise ConfigError(reason=reason)
