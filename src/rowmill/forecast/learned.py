"""Answers that are there -> how long the others will be: means of rows that ask alike.

Promises: rows are alike by the lengths of their prompts and by how long their answers may get, so that the order in which
rows are asked, longest first or shortest, makes no difference to what is expected of a row.
Knows nothing of: texts, when rows were answered.
Memory: three numbers a class; some hundreds of classes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill.forecast.answers import answers_of
from rowmill.forecast.blocks import Counts
from rowmill.rows import Prompts
from rowmill.size.work import DECODE_WEIGHT

Values = npt.NDArray[np.float64]
COARSE, FINE = 1, 4
"""Classes for each doubling of a length: for means, and for comparing like with like."""
CHARS_A_TOKEN = 4
_BITS = 10


class Sums(msgspec.Struct):
    """Of one class."""

    rows: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0


class Learned(msgspec.Struct):
    """Sums over answers, by class."""

    sums: dict[int, Sums] = {}

    def add(self, classes: Counts, answers: Counts) -> None:
        """Count rows in. Shapes: both R."""
        for one in np.unique(classes).tolist():
            found = answers[classes == one].astype(np.float64)
            sums = self.sums.setdefault(one, Sums())
            sums.rows += len(found)
            sums.tokens += float(found.sum())
            sums.squares += float((found * found).sum())

    @property
    def rows(self) -> float:
        """Rows counted."""
        return sum(sums.rows for sums in self.sums.values())

    def expected(self, classes: Counts, otherwise: Counts) -> Values:
        """Tokens of each row's answer; a class without answers goes by all of them, and before any by `otherwise`.

        Shapes: both R; returns R.
        """
        rows, tokens = self.rows, sum(sums.tokens for sums in self.sums.values())
        found = otherwise.astype(np.float64)
        if rows:
            found = np.minimum(found, tokens / rows) if len(found) else found
        for one in np.unique(classes).tolist():
            sums = self.sums.get(one)
            if sums is not None and sums.rows:
                found[classes == one] = sums.tokens / sums.rows
        return found

    def error(self, classes: Counts) -> float:
        """Standard error of the tokens that all these rows will answer together, by what was learnt. Shapes: R."""
        total = 0.0
        numbers, counts = np.unique(classes, return_counts=True)
        for one, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            sums = self.sums.get(one)
            if sums is None or sums.rows < 2:
                continue
            variance = max(0.0, sums.squares / sums.rows - (sums.tokens / sums.rows) ** 2)
            total += count * count * variance / sums.rows + count * variance
        return float(total**0.5)


class Asked(msgspec.Struct):
    """What is known of rows before they are answered. Shapes: R each."""

    lengths: Counts
    """Tokens of prompts; where an endpoint tokenises, about."""
    most: Counts
    """Tokens of answers at the most, or a guess where nothing says."""
    is_exact: npt.NDArray[np.bool_]
    """Answers that go on to their end."""

    def classes(self, steps: int = COARSE) -> Counts:
        """Which rows ask alike, with so many classes for each doubling."""
        return classes_of(self.lengths, self.most, steps)

    def expected(self, learned: Learned) -> Values:
        """Tokens of each row's answer."""
        found = learned.expected(
            self.classes(), np.where(self.is_exact, self.most, self.most // 2)
        )
        exact: Values = np.where(self.is_exact, self.most.astype(np.float64), found)
        return exact


def asked_of(prompts: Prompts) -> Asked:
    """What a batch says of its rows."""
    lengths = lengths_of(prompts)
    answers = answers_of(prompts)
    return Asked(lengths, answers.high, answers.low == answers.high)


def lengths_of(prompts: Prompts) -> Counts:
    """Tokens of each prompt; of bodies a quarter of their bytes."""
    if prompts.wires:
        sizes = np.fromiter(map(len, prompts.wires), np.int64, len(prompts))
        return np.asarray(sizes // CHARS_A_TOKEN, np.int64)
    return np.asarray(np.diff(prompts.stops, prepend=0), np.int64)


def classes_of(lengths: Counts, most: Counts, steps: int = COARSE) -> Counts:
    """Number of each row's class. Shapes: R each."""
    left = np.floor(steps * np.log2(lengths.astype(np.float64) + 1)).astype(np.int64)
    right = np.floor(steps * np.log2(most.astype(np.float64) + 1)).astype(np.int64)
    return np.asarray((left << _BITS) | right, np.int64)


def work_of(lengths: Any, answers: Any) -> float:
    """What rows cost together, in tokens of a prompt. Shapes: both R."""
    return float(np.sum(lengths) + DECODE_WEIGHT * np.sum(answers))
