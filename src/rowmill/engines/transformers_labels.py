"""Prompts -> the log-probability of each label as the whole answer.

Each prompt is computed once; its keys and values are then laid under every label, and all labels of all prompts of a
step are computed side by side.

Promises: the sum over a label's tokens, its end's included, of the model's log-probabilities; in float32 whatever the
weights are in.
Knows nothing of: rows, what becomes of the numbers.
Memory: keys and values of a step's prompts, once for each label that is computed with them: `held_tokens` at most,
but for one prompt with one label.
Shapes: B prompts, P tokens of the longest, K labels of a pass, L tokens of the longest label but its last, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from rowmill.engines.padded import Text
from rowmill.tokens.labels import Labels

_LOGIT_ROWS = 512
"""Positions at once whose logits are held: 300 MB for a vocabulary of 150,000."""


class LabelWeights:
    """A loaded `AutoModelForCausalLM`, and the labels of a job."""

    def __init__(self, model: Any, labels: Labels, *, held_tokens: int) -> None:
        self._model = model
        self._labels = labels
        self._held_tokens = held_tokens
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self.least = labels.longest

    def numbers(self, texts: Sequence[Text]) -> Any:
        """See `transformers_numbers.Computes`."""
        import torch
        from transformers.cache_utils import DynamicCache

        width = max(text.length for text in texts)
        ids_BP = np.zeros((len(texts), width), np.int64)  # noqa: N806 - shapes are named
        mask_BP = np.zeros((len(texts), width), np.int64)  # noqa: N806
        for row, text in enumerate(texts):
            ids_BP[row, width - text.length :] = text.ids
            mask_BP[row, width - text.length :] = 1
        device = self._model.device
        mask = torch.from_numpy(mask_BP).to(device)
        prompts = DynamicCache()
        with torch.inference_mode():
            found = self._model(
                input_ids=torch.from_numpy(ids_BP).to(device),
                attention_mask=mask,
                position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
                past_key_values=prompts,
                use_cache=True,
                logits_to_keep=1,
            )
            first_BV = torch.log_softmax(found.logits[:, -1].float(), dim=-1)  # noqa: N806
            heads = torch.tensor([ids[0] for ids in self._labels.ids], device=device)
            sums_BK = first_BV[:, heads].cpu().numpy()  # noqa: N806
            self._add_rest(sums_BK, prompts, mask)
        return sums_BK

    def _add_rest(self, sums: Any, prompts: Any, mask: Any) -> None:
        """Add what the labels' later tokens weigh, in place."""
        longer = [at for at, ids in enumerate(self._labels.ids) if len(ids) > 1]
        rows, width = mask.shape
        length = self._labels.longest - 1
        at_once = max(
            1,
            min(
                self._held_tokens // (rows * (width + length)),
                _LOGIT_ROWS // (rows * max(1, length)),
            ),
        )
        for start in range(0, len(longer), at_once):
            some = longer[start : start + at_once]
            is_last = start + at_once >= len(longer)
            cache = prompts if is_last else copy.deepcopy(prompts)
            sums[:, some] += self._rest(some, cache, mask)

    def _rest(self, some: list[int], cache: Any, mask: Any) -> Any:
        """Sums over the tokens behind the first of some labels; B x K."""
        import torch

        paths = [self._labels.ids[at] for at in some]
        rows, count = mask.shape[0], len(paths)
        length = max(map(len, paths)) - 1
        ids_KL = np.zeros((count, length), np.int64)  # noqa: N806 - shapes are named
        next_KL = np.zeros((count, length), np.int64)  # noqa: N806
        own_KL = np.zeros((count, length), np.int64)  # noqa: N806
        for row, path in enumerate(paths):
            ids_KL[row, : len(path) - 1] = path[:-1]
            next_KL[row, : len(path) - 1] = path[1:]
            own_KL[row, : len(path) - 1] = 1
        device = mask.device
        ids, wanted, own = (
            torch.from_numpy(one).to(device).repeat(rows, 1)
            for one in (ids_KL, next_KL, own_KL)
        )
        cache.batch_repeat_interleave(count)
        before = mask.repeat_interleave(count, dim=0)
        positions = before.sum(-1, keepdim=True) + torch.arange(length, device=device)
        found = self._model(
            input_ids=ids,
            attention_mask=torch.cat([before, own], dim=-1),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
        logprobs = torch.log_softmax(found.logits.float(), dim=-1)
        picked = logprobs.gather(-1, wanted[..., None])[..., 0] * own
        return picked.sum(-1).view(rows, count).cpu().numpy()
