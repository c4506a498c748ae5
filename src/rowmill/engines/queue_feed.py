"""The feed of an engine in its own process: filled by a thread, emptied by the engine between its steps.

Promises: rows come out in the order they went in, each once; no more are out at a time than is asked for.
Knows nothing of: channels, what an engine does with rows.
Memory: the rows that wait.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from rowmill.engines.judging import Judge
from rowmill.media.loader import Room
from rowmill.rows import Prompts

_NONE_NOW = Prompts([], np.empty(0, np.uint32), np.empty(0, np.int64), [], [], [], [], [])


class QueueFeed:
    """See `protocol.Feed`."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.room: Room | None = None
        """Where images and audio wait for this, bounded."""
        self._batches: deque[Prompts | None] = deque()
        self._changed = threading.Condition()
        self._has_ended = False
        self._at_once = 0
        self.taken = 0
        """Rows the engine took so far."""
        self.answered = 0
        """Rows that it gave back so far."""

    def put(self, prompts: Prompts | None) -> None:
        """Add rows; None: no more will come."""
        with self._changed:
            self._batches.append(prompts)
            self._changed.notify_all()

    def drop(self) -> None:
        """Forget rows that are not taken yet; no more will come."""
        with self._changed:
            self._batches.clear()
            self._batches.append(None)
            self._changed.notify_all()

    def hold(self, at_once: int) -> None:
        """Let the engine have no more than so many rows at a time; 0: as many as it takes.

        To hold them back before the channel would leave seats empty for the time that an answer and the next row take
        through both processes.
        """
        with self._changed:
            self._at_once = at_once
            self._changed.notify_all()

    def note_taken(self, num_rows: int) -> None:
        """Count rows that the engine has, or will never have: they failed before it."""
        with self._changed:
            self.taken += num_rows

    def note_answered(self, num_rows: int) -> None:
        """Count rows that the engine has no more."""
        with self._changed:
            self.answered += num_rows
            self._changed.notify_all()

    def waiting(self) -> int:
        """Batches not taken yet."""
        return len(self._batches)

    def take(self, *, wait: bool) -> Prompts | None:
        """See `protocol.Feed`."""
        if self._has_ended:
            return None
        with self._changed:
            if wait:
                self._changed.wait_for(self._has_some)
            elif not self._has_some():
                return _NONE_NOW
            prompts = self._batches.popleft()
            if prompts is None:
                self._has_ended = True
                return None
            room = self._room()
            if self._at_once and room < len(prompts):
                self._batches.appendleft(prompts.slice(room, len(prompts)))
                prompts = prompts.slice(0, room)
            self.taken += len(prompts)
        if self.room is not None and prompts.media:
            # By key: a slice has the media of all that it was cut from.
            some = [prompts.media.get(key, ()) for key in prompts.keys]
            self.room.free(sum(one.num_bytes for found in some for one in found))
        self._judge.expect(prompts)
        return prompts

    def _has_some(self) -> bool:
        """Whether there is a batch to give, or an end to tell."""
        if not self._batches:
            return False
        return self._batches[0] is None or not self._at_once or self._room() > 0

    def _room(self) -> int:
        return self._at_once - (self.taken - self.answered)
