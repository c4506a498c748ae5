"""Logits of the next tokens -> the tokens, each drawn as its row wants.

Promises: a row's draw depends on its own logits and its own generator alone, so not on the rows beside it;
what is not asked for is as in the model's `generation_config.json`, as with `generate`.
Knows nothing of: models, caches.
Memory: a few times the logits of the rows that draw.
Shapes: B rows, V vocabulary; `logits_BV`, float32.
Source: transformers 5.19, generation/logits_process.py, in its order: penalties, temperature, top_k, top_p, min_p.
Presence and frequency penalties, which it has not, are those of OpenAI's API: of tokens of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rowmill.rows import Sampling

if TYPE_CHECKING:
    import torch


class Draw(msgspec.Struct, frozen=True):
    """How tokens of a row are drawn, all told."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition: float
    presence: float
    frequency: float

    @property
    def is_plain(self) -> bool:
        """Whether the most likely token is taken, whatever was said before."""
        return not (self.temperature or self.has_penalty)

    @property
    def has_penalty(self) -> bool:
        """Whether what was said before counts."""
        return self.repetition != 1 or bool(self.presence or self.frequency)


def draw_of(sampling: Sampling, defaults: Mapping[str, Any]) -> Draw:
    """What a row asks for, over the model's defaults: those of a model that does not sample are greedy."""
    usual = defaults.get("temperature") or 1.0
    default_temperature = usual if defaults.get("do_sample") else 0.0
    has_said = (
        sampling.top_p is not None or sampling.top_k is not None or sampling.min_p is not None
    )
    if has_said and not default_temperature:
        # To ask for a set to draw from is to ask for a draw.
        default_temperature = usual

    def chosen(name: str, otherwise: float) -> float:
        value = getattr(sampling, name)
        found = defaults.get(name) if value is None else value
        return otherwise if found is None else found

    return Draw(
        temperature=(
            default_temperature if sampling.temperature is None else sampling.temperature
        ),
        top_k=max(0, int(chosen("top_k", 0))),
        top_p=chosen("top_p", 1.0),
        min_p=chosen("min_p", 0.0),
        repetition=chosen("repetition_penalty", 1.0),
        presence=sampling.presence_penalty or 0.0,
        frequency=sampling.frequency_penalty or 0.0,
    )


def next_token(
    logits_V: torch.Tensor,  # noqa: N803 - shapes are named
    draw: Draw,
    *,
    prompt: np.ndarray[Any, Any],
    said: list[int],
    generator: torch.Generator,
) -> int:
    """The next token of one row."""
    import torch

    if draw.has_penalty:
        logits_V = _penalised(logits_V, draw, prompt, said)  # noqa: N806
    if not draw.temperature:
        return int(logits_V.argmax())
    # From the most likely to the least: each filter leaves a beginning.
    values, order = torch.sort(logits_V / draw.temperature, descending=True)
    if draw.top_k:
        values = values[: draw.top_k]
    shares = torch.softmax(values, dim=-1)
    keep = len(shares)
    if draw.top_p < 1:
        # The first token whose predecessors have that much together is left out, and all behind it.
        before = shares.cumsum(-1) - shares
        keep = min(keep, int((before < draw.top_p).sum()))
    if draw.min_p:
        keep = min(keep, int((shares >= draw.min_p * shares[0]).sum()))
    sums = shares[: max(1, keep)].double().cumsum(-1)
    point = torch.rand((), generator=generator, dtype=torch.float64) * sums[-1].cpu()
    return int(
        order[min(int(torch.searchsorted(sums.cpu(), point, right=True)), len(sums) - 1)]
    )


def _penalised(
    logits: torch.Tensor, draw: Draw, prompt: np.ndarray[Any, Any], said: list[int]
) -> torch.Tensor:
    import torch

    logits = logits.clone()
    if draw.repetition != 1:
        seen = torch.tensor(sorted({*map(int, prompt), *said}), device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(
            values < 0, values * draw.repetition, values / draw.repetition
        )
    if said and (draw.presence or draw.frequency):
        tokens, counts = np.unique(np.array(said), return_counts=True)
        at = torch.from_numpy(tokens).to(logits.device)
        times = torch.from_numpy(counts).to(logits.device, logits.dtype)
        logits[at] -= draw.presence + draw.frequency * times
    return logits


def logprobs_of(
    logits_V: torch.Tensor,  # noqa: N803 - shapes are named
    token: int,
    most_likely: int,
) -> tuple[float, list[tuple[int, float]]]:
    """Log-probability of a token, and the most likely ones with theirs; before penalties and temperature."""
    import torch

    found = torch.log_softmax(logits_V, dim=-1)
    values, order = torch.topk(found, most_likely)
    return float(found[token]), list(zip(order.tolist(), values.tolist(), strict=True))
