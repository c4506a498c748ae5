"""Output -> its one owner: the run whose token stands in the note.

Promises: of two runs that start at once exactly one gets the output; workers with the owner's token join it.
Knows nothing of: tasks.
Memory: one note.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rowmill.leases import flocked, noted
from rowmill.storage import LocalStorage, Storage


class Owner(Protocol):
    """A share in the ownership of an output; closing it gives it back."""

    token: str
    """Of the run: workers that name it may join."""
    has_joined: bool
    """Whether others of the run lived already; False for one that is alone, until others join it."""

    def is_lost(self) -> bool:
        """Whether the output has passed to another run, or was taken away."""
        ...

    def close(self) -> None:
        """Give the share back; closing twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def claim_output(
    storage: Storage,
    *,
    token: str | None = None,
    lease_s: float = 30.0,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Owner:
    """Own the output for a new run, or join the run that has `token`.

    Args:
        storage: the output.
        token: None draws one; another process that gives the same one joins instead of being refused.
        lease_s: where there are no file locks, how long a note must stand still to be taken for dead.
        clock: monotonic seconds; only where there are no file locks, as is `pause`.
        pause: waits so many seconds.

    Raises: OutputInUse, naming the owner; BadOutput where the file system has no locks; StorageError.
    """
    if isinstance(storage, LocalStorage):
        return flocked.claim(storage, token=token)
    return noted.claim(storage, token=token, lease_s=lease_s, clock=clock, pause=pause)
