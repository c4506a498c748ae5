"""The columns of the input that a job looks at.

Knows nothing of: files, rows.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Wanted(msgspec.Struct, frozen=True):
    """The columns a job uses: a predicate for readers that can leave others unread."""

    needed: tuple[frozenset[str], ...]
    """Of each set, a row must have one at least."""
    used: frozenset[str]
    """Columns that mean something where they are."""
    prefix: str
    """Names that begin so clash with result columns: they are read to be told."""

    def __call__(self, name: str) -> bool:
        """Whether a column of this name is to be read."""
        return (
            name in self.used
            or name.startswith(self.prefix)
            or any(name in names for names in self.needed)
        )

    def can_do_with(self, names: Collection[str]) -> bool:
        """Whether rows of these columns have what is needed."""
        return not any(group.isdisjoint(names) for group in self.needed)
