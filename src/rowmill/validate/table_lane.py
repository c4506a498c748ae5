"""The fast lane of tables: a column is turned into texts once a batch, not once a row.

Promises: a value that is neither string nor whole number, or an id that is neither string nor whole number, takes the long way,
which reads the row's JSON view and knows what to say.
Knows nothing of: files, types of columns.
Memory: the texts of one batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from rowmill.rows import RowColumns, TableRow

Picked = tuple[list[list[Any]], list[bytes | None]]
"""Texts by column, and ids (None: take the long way), each a list of rows."""


class TableLane:
    """Picks what a row asks with out of the columns of its batch."""

    def __init__(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        *,
        never: Collection[str],
        prefix: str,
    ) -> None:
        """A lane for one job.

        Args:
            texts: Columns that must be strings.
            ids: Columns that may hold the id; the first that does, counts.
            never: Columns that mean something else: tables that have one take the long way.
            prefix: Tables with a column that begins so take it as well.
        """
        self._texts, self._ids = tuple(texts), tuple(ids)
        self._never, self._prefix = frozenset(never), prefix
        self._last: tuple[RowColumns | None, Picked | None] = (None, None)

    def pick(self, row: TableRow) -> tuple[list[Any], bytes] | None:
        """Texts and id of a row; None where it must take the long way."""
        columns, picked = self._last
        if columns is not row.columns:
            picked = self._pick_all(row.columns)
            self._last = (row.columns, picked)
        if picked is None:
            return None
        id = picked[1][row.at]
        if id is None:
            return None
        values = [texts[row.at] for texts in picked[0]]
        for place, value in enumerate(values):
            if type(value) is int:
                values[place] = str(value)
            elif type(value) is not str:
                return None
        return values, id

    def _pick_all(self, columns: RowColumns) -> Picked | None:
        names = set(columns.names)
        if (
            not names.issuperset(self._texts)
            or not names.isdisjoint(self._never)
            or any(name.startswith(self._prefix) for name in names)
        ):
            return None
        ids: list[bytes | None] = [b""] * columns.num_rows
        for name in reversed([name for name in self._ids if name in names]):
            ids = [
                _id_or(value, old) for value, old in zip(columns.values(name), ids, strict=True)
            ]
        return [columns.values(name) for name in self._texts], ids


def _id_or(value: Any, otherwise: bytes | None) -> bytes | None:
    """Canonical id of a value; `otherwise` where it holds none, None where thought is needed."""
    if value is None or value == "":
        return otherwise
    if type(value) is str:
        return msgspec.json.encode(value)
    return b"%d" % value if type(value) is int else None
