"""What holds for the rows of a job whatever their shape."""

from __future__ import annotations

import msgspec

from rowmill.errors import Unreadable
from rowmill.rows import AnyRow
from rowmill.validate.asked import Samplings
from rowmill.validate.ids import IdColumns
from rowmill.validate.lines import Columns, shown, split_columns
from rowmill.validate.once import check_columns
from rowmill.validate.shapes import Way


class Rules(msgspec.Struct, frozen=True):
    """How the job asks, and what is common to all of its rows."""

    way: Way
    samplings: Samplings
    ids: IdColumns
    prefix: str
    """What names of result columns begin with."""
    used: frozenset[str]
    """Columns that mean something in this job, or are part of its prompt."""

    def columns(self, row: AnyRow) -> tuple[Columns, bytes]:
        """A row's columns and its id, the long way.

        Raises:
            Unreadable: the line is no JSON object, a column that is used stands twice in it,
                or one clashes with those of results.
            InvalidRow: the id is no scalar.
        """
        columns = split_columns(row.line)
        for name in columns:
            if name.startswith(self.prefix):
                reason = (
                    f"column `{shown(name)}` begins as result columns do (`{self.prefix}`);"
                    " rename it, or set `output.prefix`"
                )
                raise Unreadable(reason=reason)
        check_columns(row.line, columns, self.used)
        return columns, self.ids.among(columns)
