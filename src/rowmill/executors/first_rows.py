"""Whether so many rows are checked that the engine may start: as many as are wanted, or all that can be had now.

Promises: of workers that share a run none waits for rows that another holds, who may be waiting for its own.
Knows nothing of: what is wrong with rows.
"""

from __future__ import annotations

from rowmill.executors.claims import Claims
from rowmill.pipeline import Stations


class FirstRows:
    """The first rows of one worker."""

    def __init__(self, stations: Stations, claims: Claims, wanted: int) -> None:
        self._stations, self._claims, self.wanted = stations, claims, wanted

    def are_validated(self) -> bool:
        """Whether enough is validated; one row at least."""
        return self._stations.num_validated >= (1 if self._claims.is_out else self.wanted)

    def are_read(self) -> bool:
        """Whether enough is measured and planned, too."""
        there = max(1, self._stations.num_validated)
        return self._stations.num_read >= (there if self._claims.is_out else self.wanted)

    def can_ask(self) -> bool:
        """Whether there is a row to ask, or none among all that can be had now."""
        return self._stations.num_tokens > 0 or (self._claims.is_out and self.are_read())
