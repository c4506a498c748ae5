"""SIGINT, SIGTERM -> a word to the run: drain. A second signal: at once.

Promises: handlers are put back; outside the main thread nothing is touched.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Stop:
    """Why the run should end before its input does, if it should. The first reason stands."""

    def __init__(self) -> None:
        self.reason = ""
        self.exit_code = 0
        self._old: dict[int, object] = {}

    def __bool__(self) -> bool:
        return bool(self.reason)

    def ask(self, reason: str, exit_code: int) -> None:
        """Have the run drain and end."""
        if not self.reason:
            self.reason, self.exit_code = reason, exit_code

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in EXIT_CODES:
                self._old[number] = signal.signal(number, self._heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        if self.reason:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        self.ask(
            f"{name} received",
            EXIT_CODES[signal.Signals(number)],
        )
