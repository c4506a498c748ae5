"""The probabilities of labels as transformers gives them, written as plainly as can be: the measure for engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def plain_model(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32
    ).eval()


def plain_shares(model: Any, prompt: Sequence[int], labels: Sequence[Sequence[int]]) -> Any:
    """Softmax over labels of the summed log-probability of each one's tokens behind the prompt."""
    sums = []
    for label in labels:
        ids = torch.tensor([[*prompt, *label]])
        with torch.inference_mode():
            logits = model(input_ids=ids).logits[0]
        logprobs = torch.log_softmax(logits, dim=-1)
        first = len(prompt) - 1
        sums.append(sum(float(logprobs[first + at, token]) for at, token in enumerate(label)))
    raised = np.exp(np.array(sums) - max(sums))
    return raised / raised.sum()
