"""What the engine was given and has not answered: key -> the Prompts it lies in.

Promises: an answer is taken once; what is open can be taken out and given again, in order.
Knows nothing of: processes, channels.
Memory: a dictionary entry a row, and the batches that still hold an open row;
batches that are mostly answered are cut down to their open rows now and then.
Time: about 0.1 us a row for adding and answering (a dictionary, one value a batch, no copy a row).
"""

from __future__ import annotations

from collections import Counter

from rowmill.outcomes import Outcomes
from rowmill.rows import Prompts

_SPARSE_SHARE = 0.25
"""A batch with fewer of its rows open than this is cut down: a long row must not pin a thousand."""
_SLACK_ROWS = 8192


class Ledger:
    """Open rows. Adding and settling may go on in two threads: each step is one dictionary operation."""

    def __init__(self) -> None:
        self._batch_of: dict[int, Prompts] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._batch_of)

    def add(self, prompts: Prompts) -> None:
        """Note rows as open."""
        self._batch_of.update(dict.fromkeys(prompts.keys, prompts))
        self._added += len(prompts)

    def settle(self, outcomes: Outcomes) -> Outcomes:
        """Close the rows of `outcomes`.

        Returns:
            Those that were open: an outcome of a row answered before is dropped.
        """
        if self._added > _SLACK_ROWS + len(self._batch_of):
            self._added = 0
            self._cut_down()
        take = self._batch_of.pop
        found = [take(key, None) is not None for key in outcomes.keys.tolist()]
        if all(found):
            return outcomes
        return outcomes.take([i for i, is_open in enumerate(found) if is_open])

    def longest(self, unlimited: int) -> tuple[int, int]:
        """Most tokens that an open row may generate, and the prompt tokens of all; over their batches, so at least.

        Args:
            unlimited: stands for a row that may go on to the end of the context.
        """
        batches = _distinct(dict(self._batch_of))
        asked = {tokens or unlimited for batch in batches for tokens in set(batch.max_tokens)}
        return max(asked, default=0), sum(len(batch.ids) for batch in batches)

    def drain(self) -> list[Prompts]:
        """Take all open rows out, in the order they were given."""
        open_rows, self._batch_of = self._batch_of, {}
        return [_open_part(batch, open_rows) for batch in _distinct(open_rows)]

    def _cut_down(self) -> None:
        """Run by the thread that settles: the other one only adds keys that are not there."""
        values = list(self._batch_of.values())
        batches = {id(batch): batch for batch in values}
        for number, count in Counter(map(id, values)).items():
            batch = batches[number]
            if count < len(batch) * _SPARSE_SHARE:
                small = _open_part(batch, self._batch_of)
                self._batch_of.update(dict.fromkeys(small.keys, small))


def _distinct(open_rows: dict[int, Prompts]) -> list[Prompts]:
    return list({id(batch): batch for batch in open_rows.values()}.values())


def _open_part(batch: Prompts, open_rows: dict[int, Prompts]) -> Prompts:
    rows = [i for i, key in enumerate(batch.keys) if open_rows.get(key) is batch]
    return batch if len(rows) == len(batch) else batch.take(rows)
