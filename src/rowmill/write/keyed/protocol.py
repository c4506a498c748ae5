"""What a keyed sink promises, and what it is told.

Promises: none of its own.
Knows nothing of: any one store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from rowmill.write.keyed.wanted import Holds, Table, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

    from rowmill.sink_address import SinkAddress
    from rowmill.write.keyed.points import Points


class KeyedSink(Protocol):
    """An open store.

    Every method raises SinkDown where the store does not answer, and BadSink where it refuses for good.
    """

    holds: Holds

    def examine(self) -> Table | None:
        """What is there already; None where nothing is. Changes nothing.

        Raises: BadSink where vectors cannot go there: another metric, a table of another shape.
        """
        ...

    def prepare(self, schema: pa.Schema, dimensions: int) -> None:
        """Make the table, or see that it takes such columns. Called before the first `put`."""
        ...

    def count(self) -> int:
        """How many vectors are there."""
        ...

    def marks(self, run: str) -> set[str] | None:
        """What was put of a run, by the marks it was put under; None where the store keeps no such list."""
        ...

    def forget(self, run: str) -> None:
        """Drop the marks of a run: what it put is no longer there."""
        ...

    def put(self, run: str, mark: str, parts: Iterator[Points]) -> None:
        """Put the vectors of one task: durable on return, and harmless to repeat.

        A row's vectors take the place of all that are there under its key.

        Args:
            run: what the marks of one run have in common.
            mark: names the task; in a store that keeps marks, what is marked is passed over.
            parts: the rows; keys do not repeat in them.
        """
        ...

    def finish(self, *, builds_index: bool) -> list[str]:
        """Build the index and tidy up, once all is there. Returns: what is remarkable, for people."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


class Unmarked:
    """Of a sink whose store keeps no list of what was put: there a key alone makes it harmless to repeat."""

    def marks(self, run: str) -> None:
        """See `KeyedSink`."""

    def forget(self, run: str) -> None:
        """See `KeyedSink`."""


class Open(Protocol):
    """What a module of a keyed sink has as `open`."""

    def __call__(self, address: SinkAddress, wanted: Wanted) -> KeyedSink:
        """Connect.

        Raises: BadSink for an address that cannot be right, MissingExtra, SinkDown.
        """
        ...
