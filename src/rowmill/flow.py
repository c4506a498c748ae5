"""Windows from one thread to another: the only file that owns a thread.

Promises: what waits is bounded by weight; an error of the filling side is raised on the taking side;
closing wakes both sides.
Knows nothing of: rows, engines, files.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
CALM_THRESHOLD = (50_000, 50, 100)
CALM_SWITCH_S = 0.02
PR_SET_PDEATHSIG = 1
ENDING_S = 5.0
"""So long a thread that fills a buffer is waited for once nobody takes from it: a read from a slow store may take longer."""


@contextlib.contextmanager
def calm_interpreter() -> Iterator[None]:
    """Fewer passes of the cyclic collector and fewer switches of thread, as long as a run goes on.

    Hot records have no cycles, and each pass looks at all rows in flight; our threads work in long stretches,
    none waits on another's every word. Source: measured, 1,000,000 rows: 6.9 s become 5.8 s.
    """
    thresholds, interval_s = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(*CALM_THRESHOLD)
    sys.setswitchinterval(CALM_SWITCH_S)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval_s)


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends, however that dies; Linux only."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Clock:
    """Seconds that one thread spent within `with`, what goes on now included; any thread may read them."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = None

    @property
    def seconds(self) -> float:
        """So far."""
        since = self._since
        return self._seconds + (time.monotonic() - since if since is not None else 0.0)


class Closed(Exception):
    """The taking side went away."""


class Buffer(Generic[T]):
    """A queue bounded by the weight of what waits in it; the bound may be changed at any time."""

    def __init__(self, max_weight: float) -> None:
        self._max_weight = max_weight
        self._waiting: deque[tuple[T, float]] = deque()
        self._weight = 0.0
        self._error: BaseException | None = None
        self._is_ended = self._is_closed = False
        self._changed = threading.Condition()
        self.blocked, self.starved = Clock(), Clock()
        """How long the filling side waited for room, and the taking side for something."""
        self.filled = Clock()
        """How long the filling side was at it, its waits included; `fill` counts it."""
        self.filler: threading.Thread | None = None

    @property
    def weight(self) -> float:
        """Weight of what waits now."""
        return self._weight

    @property
    def is_full(self) -> bool:
        """Whether the filling side has to wait."""
        return self._weight >= self._max_weight

    def bound(self, max_weight: float) -> None:
        """Change how much may wait."""
        with self._changed:
            self._max_weight = max_weight
            self._changed.notify_all()

    def put(self, thing: T, weight: float) -> None:
        """Add a thing once there is room; one heavier than the bound goes in alone.

        Raises:
            Closed: nobody will take it.
        """
        with self._changed:
            if self.is_full and not self._is_closed:
                with self.blocked:
                    self._changed.wait_for(lambda: self._is_closed or not self.is_full)
            if self._is_closed:
                raise Closed
            self._waiting.append((thing, weight))
            self._weight += weight
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more comes, or why."""
        with self._changed:
            self._is_ended, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Say that nothing more is taken; a waiting `put` raises Closed.

        Who fills it is waited for, within reason: what it claims and writes is not to come behind its owner's end.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self.filler is not None:
            self.filler.join(ENDING_S)

    def wait(self, is_enough: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `is_enough`, the end, or the time is up. Raises the filling side's error."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_ended or is_enough(), timeout_s)
            if self._error is not None:
                raise self._error
            return done

    def take(self, timeout_s: float) -> T | None:
        """The next thing; None when there is none in time or ever (then `is_drained`).

        Raises: the filling side's error, once all it put before is taken.
        """
        with self._changed:
            if not (self._waiting or self._is_ended or self._is_closed):
                with self.starved:
                    self._changed.wait_for(
                        lambda: self._waiting or self._is_ended or self._is_closed, timeout_s
                    )
            if self._waiting:
                thing, weight = self._waiting.popleft()
                self._weight -= weight
                self._changed.notify_all()
                return thing
            if self._error is not None:
                raise self._error
            return None

    @property
    def is_drained(self) -> bool:
        """Whether all that will ever be taken was."""
        with self._changed:
            return self._is_closed or (self._is_ended and not self._waiting)


def fill(
    buffer: Buffer[T], things: Iterator[T], weigh: Callable[[T], float], *, name: str
) -> None:
    """Start a thread that puts `things` into `buffer`; its errors are raised where they are taken."""

    def work() -> None:
        try:
            with buffer.filled:
                for thing in things:
                    buffer.put(thing, weigh(thing))
            buffer.end()
        except Closed:
            pass
        except BaseException as error:
            buffer.end(error)

    buffer.filler = threading.Thread(target=work, name=name, daemon=True)
    buffer.filler.start()


def drain(buffer: Buffer[T]) -> Iterator[T]:
    """All that comes through a buffer. Raises: the filling side's error."""
    while True:
        thing = buffer.take(1.0)
        if thing is not None:
            yield thing
        elif buffer.is_drained:
            return


class Keeper:
    """A thread that calls `work` each `every_s`, and at once when nudged; its first error is kept for the caller."""

    def __init__(self, work: Callable[[], None], every_s: float, *, name: str) -> None:
        self._work, self._every_s = work, every_s
        self._nudged, self._is_over = threading.Event(), False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    def nudge(self) -> None:
        """Have `work` called now."""
        self._nudged.set()

    def stop(self) -> None:
        """End the thread once the call under way is over."""
        self._is_over = True
        self._nudged.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._is_over:
            self._nudged.wait(self._every_s)
            self._nudged.clear()
            if self._is_over or self.error is not None:
                return
            try:
                self._work()
            except BaseException as error:
                self.error = error
