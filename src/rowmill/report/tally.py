"""Outcomes of a run -> what a report says of its rows: lengths, failures by kind, answers cut short, tries.

Promises: every row that has an outcome is counted once; of failures the first few rows are named, in order of the input.
Knows nothing of: plots, source files.
Memory: counts, not rows; one piece of one segment, or one task that is not committed.
Time: about 2 us a row. Only the fields that are counted are decoded: texts and vectors are passed over.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from rowmill.journal import Commit, Counts
from rowmill.outcomes import pack
from rowmill.report.lengths import Lengths
from rowmill.report.run import View
from rowmill.rows import RESULT_PREFIX
from rowmill.write.segments import read_lines_of

MAX_NAMED = 20
"""Rows that are named of each kind of failure; the rest are counted."""
MAX_LIMITS = 50
"""Different `max_tokens` that are told apart."""
MILLISECONDS = 1000.0


def _name(field: str) -> str:
    return field if field == "key" else RESULT_PREFIX + field


class _Choice(msgspec.Struct):
    violation: str | None = None


class _Line(msgspec.Struct, gc=False, rename=_name):
    """What is counted of an outcome."""

    key: int
    status: str
    finish_reason: str = ""
    choices: list[_Choice] = []
    prompt_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int = 0
    attempts: int = 0
    seconds: float = 0.0
    copied_from: str | None = None
    error_kind: str | None = None
    violation: str | None = None


_decode = msgspec.json.Decoder(list[_Line]).decode


class Rows:
    """Rows of which the first few are named."""

    def __init__(self, keys: Iterable[int] = (), number: int = 0) -> None:
        self.number = number
        self.keys = list(keys)
        """The least `MAX_NAMED` of them, in order."""

    def add(self, keys: Sequence[int]) -> None:
        """Count more in."""
        self.number += len(keys)
        if len(self.keys) < MAX_NAMED or (keys and min(keys) < self.keys[-1]):
            self.keys = heapq.nsmallest(MAX_NAMED, [*self.keys, *keys])

    def copy(self) -> Rows:
        """The same, to count on apart."""
        return Rows(self.keys, self.number)


class Tally:
    """What outcomes come to."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.prompts, self.answers, self.waits_ms = Lengths(), Lengths(), Lengths()
        self.failures: dict[str, Rows] = {}
        """By kind."""
        self.truncated, self.violations = Rows(), Rows()
        self.limits: Counter[int] = Counter()
        """`max_tokens` in force of the answers that were cut -> rows; 0: the context."""
        self.tries: Counter[int] = Counter()
        """Attempts -> rows that took so many."""

    def copy(self) -> Tally:
        """The same, to count on apart."""
        copied = Tally()
        copied.counts.merge(self.counts)
        copied.prompts, copied.answers = self.prompts.copy(), self.answers.copy()
        copied.waits_ms = self.waits_ms.copy()
        copied.failures = {kind: rows.copy() for kind, rows in self.failures.items()}
        copied.truncated, copied.violations = self.truncated.copy(), self.violations.copy()
        copied.limits, copied.tries = self.limits.copy(), self.tries.copy()
        return copied

    def add_lines(self, lines: Sequence[bytes]) -> None:
        """Count lines of a segment in, all but their sums, which commits hold."""
        if not lines:
            return
        rows = _decode(b"[" + b",".join(lines) + b"]")
        self.prompts.add(_numbers(row.prompt_tokens for row in rows if row.prompt_tokens))
        asked = [row for row in rows if row.attempts]
        self.waits_ms.add(_numbers(int(row.seconds * MILLISECONDS) for row in asked))
        self.tries.update(row.attempts for row in asked)
        well = [row for row in rows if row.status == "ok"]
        self.answers.add(_numbers(row.output_tokens for row in well))
        self._add_cut([row for row in well if row.finish_reason == "length"])
        self.violations.add([row.key for row in well if _is_violated(row)])
        if len(well) < len(rows):
            self._add_failures([row for row in rows if row.status != "ok"])

    def _add_cut(self, cut: Sequence[_Line]) -> None:
        self.truncated.add([row.key for row in cut])
        for limit, number in Counter(row.max_tokens for row in cut).items():
            is_known = limit in self.limits or len(self.limits) < MAX_LIMITS
            self.limits[limit if is_known else -1] += number

    def _add_failures(self, failed: Sequence[_Line]) -> None:
        for kind in {row.error_kind or "" for row in failed}:
            rows = self.failures.setdefault(kind, Rows())
            rows.add([row.key for row in failed if (row.error_kind or "") == kind])


def _numbers(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter(values, np.int64)


def _is_violated(row: _Line) -> bool:
    return row.violation is not None or any(c.violation is not None for c in row.choices)


class Tallying:
    """A tally that is brought up to date: committed tasks are read once."""

    def __init__(self) -> None:
        self._whole = Tally()
        self._taken: dict[int, list[str]] = {}
        """Task -> segments that were counted."""

    def look(self, view: View) -> Tally:
        """All outcomes of a run as they are now.

        Raises:
            StorageError: they cannot be read, or are not those that were committed.
        """
        if any(self._taken.get(task, s) != s for task, s in _segments(view).items()):
            self._whole, self._taken = Tally(), {}  # rows were asked again
        for task, names in _segments(view).items():
            if task not in self._taken:
                self._take(view, view.commits[task])
                self._taken[task] = names
        now = self._whole.copy()
        for task in view.open_tasks():
            opened = pack(view.open_outcomes(task))
            now.counts.add(opened)
            now.add_lines(opened.lines.split(b"\n")[:-1])
        return now

    def _take(self, view: View, commit: Commit) -> None:
        for ref in commit.segments:
            for lines in read_lines_of(view.storage, ref):
                self._whole.add_lines(lines)
        self._whole.counts.merge(commit.counts)


def _segments(view: View) -> dict[int, list[str]]:
    return {task: [ref.name for ref in c.segments] for task, c in view.commits.items()}
