"""SIGINT, SIGTERM -> a word to the run: drain. A second signal, or one where nothing can drain: at once.

Promises: handlers are put back; outside the main thread nothing is touched.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class StoppedNow(KeyboardInterrupt):
    """A signal ends the run without a drain; what is written stays."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = EXIT_CODES[signal.Signals(number)]


class Stop:
    """Why the run should end before its input does, if it should. The first reason stands."""

    def __init__(self) -> None:
        self.reason = ""
        self.exit_code = 0
        self._old: dict[int, object] = {}
        self._can_drain = False
        self._heard_number: int | None = None

    def __bool__(self) -> bool:
        return bool(self.reason)

    def ask(self, reason: str, exit_code: int) -> None:
        """Have the run drain and end."""
        if not self.reason:
            self.reason, self.exit_code = reason, exit_code

    def end_before_begun(self) -> None:
        """Where a stop was asked for, end at once: of a run that is not written yet there is nothing to drain.

        Raises:
            StoppedNow: it was.
        """
        if self._heard_number is not None:
            raise StoppedNow(self._heard_number)

    @contextlib.contextmanager
    def draining(self) -> Iterator[None]:
        """While rows are answered, a first signal only asks; before and after there is nothing to wait for."""
        self._can_drain = True
        try:
            yield
        finally:
            self._can_drain = False

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
        if self.reason or not self._can_drain:
            raise StoppedNow(number)
        self._heard_number = number
        name = signal.Signals(number).name
        self.ask(f"{name} received", EXIT_CODES[signal.Signals(number)])
