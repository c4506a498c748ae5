"""Texts, or pairs of them -> the numbers of a model's head for classes.

Promises: a text's numbers do not depend on the texts beside it, beyond rounding.
Knows nothing of: rows, what the numbers mean.
Memory: activations of a step.
Shapes: B texts, T tokens of the longest, H hidden, C classes.
Source: transformers 5.19: its heads of decoders look for the last token that is not padding by its id, which a text may
hold itself; here it is taken by the text's length.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from rowmill.engines.padded import Text


class ClassHead:
    """A loaded `AutoModelForSequenceClassification`."""

    least = 0

    def __init__(self, model: Any) -> None:
        self._model = model
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        names = inspect.signature(model.forward).parameters
        self._has_types = (
            "token_type_ids" in names and getattr(model.config, "type_vocab_size", 0) > 1
        )
        # What a decoder says of a text stands at its last token.
        self._is_last = hasattr(model, "score") and not hasattr(model, "classifier")

    def numbers(self, texts: Sequence[Text]) -> Any:
        """See `transformers_numbers.Computes`."""
        import torch

        width = max(text.length for text in texts)
        ids_BT = np.zeros((len(texts), width), np.int64)  # noqa: N806 - shapes are named
        mask_BT = np.zeros((len(texts), width), np.int64)  # noqa: N806
        types_BT = np.zeros((len(texts), width), np.int64)  # noqa: N806
        for row, text in enumerate(texts):
            ids_BT[row, : text.length] = text.ids
            mask_BT[row, : text.length] = 1
            types_BT[row, text.second : text.length] = 1
        given = {"input_ids": ids_BT, "attention_mask": mask_BT}
        if self._has_types:
            given["token_type_ids"] = types_BT
        device = self._model.device
        tensors = {name: torch.from_numpy(value).to(device) for name, value in given.items()}
        with torch.inference_mode():
            return self._logits(tensors, [text.length for text in texts]).float().cpu().numpy()

    def _logits(self, given: dict[str, Any], lengths: list[int]) -> Any:
        if not self._is_last:
            return self._model(**given).logits
        import torch

        hidden_BTH = self._model.base_model(**given).last_hidden_state  # noqa: N806
        rows = torch.arange(len(lengths), device=hidden_BTH.device)
        last = torch.tensor(lengths, device=hidden_BTH.device) - 1
        return self._model.score(hidden_BTH[rows, last])
