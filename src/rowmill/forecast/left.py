"""Rows planned and rows answered -> the work that a run has before it, by tokens and not by rows.

Promises: rows that are planned count with their own prompts and with the answers that rows like them had; those that are
not read yet like the mean of those that are.
Knows nothing of: time, engines.
Memory: a number a planned row whose answer may end by itself, a few a class.
"""

from __future__ import annotations

from itertools import repeat

import msgspec
import numpy as np

from rowmill.forecast.learned import Asked, Learned
from rowmill.outcomes import FAILED, Outcomes
from rowmill.size.work import DECODE_WEIGHT


class Work(msgspec.Struct, frozen=True):
    """What is done and what is left, in tokens of a prompt; and tokens."""

    done: float = 0.0
    left: float = 0.0
    error: float = 0.0
    """Standard error of `left`."""
    prompt_tokens: float = 0.0
    """That are left."""
    output_tokens: float = 0.0


class _Planned(msgspec.Struct):
    """Rows of one class that are planned and not answered."""

    asked: Asked
    rows: int = 0


class Left:
    """What one run has before it."""

    def __init__(self, learned: Learned | None = None) -> None:
        self.learned = learned or Learned()
        self._of: dict[int, int] = {}
        """Class of each row that is planned and may end by itself."""
        self._planned: dict[int, _Planned] = {}
        self._prompts = self._exact = 0
        """Tokens of rows that are planned and not answered: of prompts, and of answers whose length is fixed."""
        self._read = 0
        self._done_prompts = self._done_outputs = 0

    def enter(self, keys: list[int], asked: Asked, num_rows: int) -> None:
        """Rows are planned; `num_rows` were read for that, copies and bad ones among them."""
        self._read += num_rows
        self._prompts += int(asked.lengths.sum())
        self._exact += int(asked.most[asked.is_exact].sum())
        free = np.flatnonzero(~asked.is_exact)
        classes = asked.classes()
        if len(free):
            codes = classes[free].tolist()
            self._of.update(zip([keys[i] for i in free.tolist()], codes, strict=True))
        for one in np.unique(classes[free]).tolist():
            here = np.flatnonzero(classes == one)
            planned = self._planned.setdefault(one, _Planned(_first(asked, int(here[0]))))
            planned.rows += int((~asked.is_exact[here]).sum())

    def skip(self, num_rows: int) -> None:
        """Rows were read of which none is to be asked."""
        self._read += num_rows

    def answered(self, outcomes: Outcomes) -> None:
        """Rows are answered."""
        prompt, _, output = outcomes.tokens.sum(axis=1, dtype=np.int64).tolist()
        self._done_prompts += prompt
        self._done_outputs += output
        self._prompts -= prompt
        codes = np.array(list(map(self._of.pop, outcomes.keys.tolist(), repeat(-1))), np.int64)
        outputs = outcomes.tokens[2].astype(np.int64)
        is_free = codes >= 0
        self._exact -= int(outputs[~is_free].sum())
        for one, rows in zip(*np.unique(codes[is_free], return_counts=True), strict=True):
            self._planned[int(one)].rows -= int(rows)
        good = is_free & ((outcomes.marks & FAILED) == 0)
        self.learned.add(codes[good], outputs[good])

    def changed(self, factor: float) -> None:
        """Answers are so many times as long from now on."""
        for sums in self.learned.sums.values():
            sums.tokens *= factor
            sums.squares *= factor * factor

    def work(self, total_rows: int) -> Work:
        """How it stands.

        Args:
            total_rows: of the run, as far as known; of these the rows that this was told of are a part.
        """
        answers = max(0.0, float(self._exact))
        error = 0.0
        for one, planned in self._planned.items():
            answers += planned.rows * float(planned.asked.expected(self.learned)[0])
            classes = np.full(planned.rows, one, np.int64)
            error += self.learned.error(classes) ** 2
        prompts = max(0.0, float(self._prompts))
        done = self._done_prompts + DECODE_WEIGHT * self._done_outputs
        more = max(0, total_rows - self._read) / self._read if self._read else 0.0
        known_prompts, known_answers = (
            self._done_prompts + prompts,
            self._done_outputs + answers,
        )
        prompts, answers = prompts + more * known_prompts, answers + more * known_answers
        return Work(
            done=done,
            left=prompts + DECODE_WEIGHT * answers,
            error=DECODE_WEIGHT * error**0.5 * (1 + more),
            prompt_tokens=prompts,
            output_tokens=answers,
        )


def _first(asked: Asked, row: int) -> Asked:
    """One row that stands for its class."""
    some = slice(row, row + 1)
    return Asked(asked.lengths[some], asked.most[some], np.zeros(1, bool))
