"""Outcomes of trials -> how long answers are, and how the work of rows compares with what was expected of it.

Promises: only rows that were answered count, and all of them that were sent are waited for before anybody asks, so that
short answers, which come first, are not taken for the usual.
Knows nothing of: engines.
Memory: three numbers a row of the sample.
"""

from __future__ import annotations

import threading

import numpy as np

from rowmill.forecast.learned import Learned, classes_of, work_of
from rowmill.outcomes import FAILED, TRUNCATED, Outcomes
from rowmill.size.work import DECODE_WEIGHT
from rowmill.tune.report import Lengths, lengths_of
from rowmill.tune.sample import Sample


class Learning:
    """What trials tell of answers. `add` may be called from any thread."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample
        self._asked = sample.asked_by_key()
        self._seen: dict[int, tuple[int, int, int, bool]] = {}
        """Of each row answered: prompt tokens, those expected, answer tokens, whether a limit ended it."""
        self._lock = threading.Lock()

    def add(self, outcomes: Outcomes) -> None:
        """Take answers in."""
        prompt, _, output = outcomes.tokens.tolist()
        marks, known = outcomes.marks.tolist(), self._asked
        with self._lock:
            for i, key in enumerate(outcomes.keys.tolist()):
                if key in known and not marks[i] & FAILED:
                    cut = bool(marks[i] & TRUNCATED)
                    self._seen[key] = (prompt[i], known[key][0], output[i], cut)

    def learned(self) -> Learned:
        """Answers by class."""
        found = Learned()
        keys = list(self._seen)
        if keys:
            lengths = np.array([self._asked[key][0] for key in keys], np.int64)
            most = np.array([self._asked[key][1] for key in keys], np.int64)
            answers = np.array([self._seen[key][2] for key in keys], np.int64)
            found.add(classes_of(lengths, most), answers)
        return found

    def prompts_share(self) -> float:
        """Tokens of prompts as they were counted by who answered, over those expected: 1, unless an endpoint counts."""
        counted = sum(prompt for prompt, _, _, _ in self._seen.values())
        expected = sum(known for _, known, _, _ in self._seen.values())
        return counted / expected if expected and counted else 1.0

    def done_work(self) -> float:
        """Of the rows answered, in tokens of a prompt."""
        seen = self._seen.values()
        return work_of([one[0] for one in seen], [one[2] for one in seen])

    def totals(self, learned: Learned) -> tuple[float, float, float, float]:
        """(work, its standard error, prompt tokens, answer tokens) of all rows of the sample."""
        share, answers = self.prompts_share(), self._sample.answers(learned)
        prompts = self._sample.prompt_tokens * share
        error = DECODE_WEIGHT * self._sample.answers_error(learned)
        return prompts + DECODE_WEIGHT * answers, error, prompts, answers

    def lengths(self) -> Lengths:
        """How long answers were that could end by themselves."""
        free = [key for key in self._seen if not self._asked[key][2]]
        outputs = np.array([self._seen[key][2] for key in free], np.int64)
        cut = np.array([self._seen[key][3] for key in free], bool)
        limit = max((self._asked[key][1] for key in free), default=0)
        return lengths_of(outputs, cut, limit)
