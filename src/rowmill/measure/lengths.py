"""Prompt lengths and asked tokens -> what fits the context: one rule for every engine.

Promises: prompt + `max_tokens` never exceeds the limit of a row that passes.
Knows nothing of: texts, files.
Memory: a few integers a row.

The rule, with limit L, prompt p, asked m:
- p >= L is too long (an answer needs a token; where no answer is text, p > L), unless the policy cuts it;
- p + m > L is too long under `error`; under `clamp_max_tokens` m becomes L - p;
- `truncate_left` and `truncate_right` cut p to L - m, to L - 1 where nothing was asked.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.config import TooLongPolicy
from rowmill.errors import CUT_IT, TooLong

Counts = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class LengthRule(msgspec.Struct, frozen=True):
    """The rule of one job."""

    limit: int
    """Most tokens of prompt and answer; 0: not known, all passes."""
    policy: TooLongPolicy
    fills_context: bool
    """A row that asks for no number of tokens gets what the context leaves; else the engine decides."""
    least: int = 1
    """Tokens that an answer takes at least."""

    @property
    def cuts(self) -> bool:
        """True where prompts are cut."""
        return self.policy in ("truncate_left", "truncate_right")

    def apply(self, prompt: Counts, asked: Counts) -> tuple[Counts, Counts, Truths]:
        """Effective prompt lengths and `max_tokens`, and which rows are too long.

        Shapes: R rows; all R. `asked` is 0 where the row asked for no number.
        """
        if not self.limit:
            return prompt, asked, np.zeros(len(prompt), np.bool_)
        room = self.limit - asked
        if self.cuts:
            kept = np.minimum(prompt, np.where(asked > 0, room, self.limit - self.least))
            is_bad = kept < np.minimum(prompt, 1)
        elif self.policy == "clamp_max_tokens":
            kept, is_bad = prompt, prompt > self.limit - self.least
            asked = np.minimum(asked, np.maximum(self.limit - prompt, 1))
        else:
            kept, is_bad = prompt, (prompt > self.limit - self.least) | (prompt > room)
        if self.fills_context:
            asked = np.where(asked > 0, asked, self.limit - kept)
        return kept, asked, is_bad

    def error(self, prompt_tokens: int, asked_tokens: int, *, uncut: str = "") -> TooLong:
        """What a row that is too long becomes; `uncut`: what of it is never cut."""
        way_on = CUT_IT
        if self.cuts:  # already, and what else is to fit leaves it no room
            way_on = "lower `max_tokens`" if asked_tokens else "shorten the labels"
        return TooLong(
            prompt_tokens=prompt_tokens,
            asked_tokens=asked_tokens,
            limit_tokens=self.limit,
            uncut=uncut,
            way_on=way_on,
        )
