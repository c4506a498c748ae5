"""A call -> the same call at even intervals, on a thread of its own, until stopped.

Promises: the call never runs after `stop` has returned.
Knows nothing of: what is called; it must not raise.
Memory: one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Heart:
    """Beats until stopped."""

    def __init__(self, beat: Callable[[], None], *, every_s: float) -> None:
        self._beat = beat
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rowmill-heart", daemon=True)

    def start(self) -> None:
        """Begin; the first beat comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a beat under way."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._beat()
