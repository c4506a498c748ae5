"""Prompts -> Outcomes, in a process of its own: `python -m rowmill.engines.child SOCKET LIFE`.

Promises: rows that arrive are waiting in the feed before the engine asks; outcomes are judged by what their rows
are held to; they leave at once while the channel is idle and in batches while it is busy;
when the parent is gone, so is this whole group.
Knows nothing of: restarts, what a row is asked for.
Memory: the rows the parent has in flight: admission is the parent's.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import open_engine
from rowmill.engines.channel import (
    AtOnce,
    Bye,
    Channel,
    ChannelClosed,
    Drain,
    End,
    Fatal,
    Gauge,
    Message,
    Open,
    Ready,
)
from rowmill.engines.judging import Judge, judge_of
from rowmill.engines.protocol import Engine
from rowmill.engines.queue_feed import QueueFeed
from rowmill.engines.secrets import Secrets
from rowmill.engines.thoughts import Thoughts
from rowmill.media.loader import Loader
from rowmill.media_config import MediaConfig
from rowmill.outcomes import pack
from rowmill.rows import Outcome, Prompts
from rowmill.tokens import open_tokenizer

_GAUGE_S = 1.0


def main(socket_fd: int, life_fd: int) -> int:
    """Serve one parent until it says so, or is gone.

    Returns:
        Exit status: 0 after a clean end, 1 after an error that the parent was told.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent(life_fd)
    channel = Channel(socket.socket(fileno=socket_fd))
    message, _ = channel.receive()
    if not isinstance(message, Open):
        return 1
    secrets = Secrets(message.engine)
    try:
        config = EngineConfig.model_validate(message.engine)
        engine = open_engine(config)
        judge = _judge(config, engine)
        channel.send(Ready(judge.limits(engine.limits)))
        # What an engine's libraries made stays: rows should not have it looked through again and again.
        gc.collect()
        gc.freeze()
        _serve(engine, channel, judge, secrets, config.media)
    except ChannelClosed:
        _end_group()
    # The border of the process: whatever ended the engine is told to the parent in its own words.
    except Exception as error:
        sys.stderr.write(secrets.hidden(traceback.format_exc()))
        with contextlib.suppress(ChannelClosed):
            channel.send(_fatal(error, secrets))
        return 1
    return 0


def _serve(
    engine: Engine,
    channel: Channel,
    judge: Judge,
    secrets: Secrets,
    media: MediaConfig | None,
) -> None:
    feed = QueueFeed(judge)
    leaving = _Leaving(channel, feed, judge, engine, secrets)
    loader = _loader(feed, leaving, engine, media)
    threading.Thread(
        target=_fill, args=(channel, loader, feed), name="fill", daemon=True
    ).start()
    leaving.start()
    try:
        for outcomes in engine.run(feed):
            if outcomes:
                leaving.put(outcomes)
    finally:
        # Also before an error is told: what is answered is answered, and one thread sends at a time.
        leaving.finish()
    engine.close()
    channel.send(Bye())


def _judge(config: EngineConfig, engine: Engine) -> Judge:
    thoughts = None
    if config.reasoning is not None and config.reasoning.tags:
        thoughts = Thoughts(config.reasoning, open_tokenizer(config))
    return judge_of(config, engine.limits, thoughts)


def _loader(
    feed: QueueFeed, leaving: _Leaving, engine: Engine, media: MediaConfig | None
) -> QueueFeed | Loader:
    """What rows enter by: a loader before the feed, where the engine takes more than text."""
    if not engine.limits.media:
        return feed

    def fail(outcome: Outcome) -> None:
        feed.note_taken(1)
        leaving.put([outcome])

    def die(error: BaseException) -> None:
        traceback.print_exception(error)  # into the engine's log
        _end_group()

    takes_wire = engine.limits.takes == "wire"
    loader = Loader(
        feed,
        fail,
        media or MediaConfig(),
        takes_wire=takes_wire,
        audio_rate=engine.limits.audio_rate,
        die=die,
    )
    feed.room = loader.room
    return loader


def _fill(channel: Channel, entry: QueueFeed | Loader, feed: QueueFeed) -> None:
    """Move rows from the channel to the feed; the parent's end without a word ends this group."""
    try:
        while True:
            message, prompts = channel.receive()
            if isinstance(prompts, Prompts):
                entry.put(prompts)
            elif isinstance(message, End):
                entry.put(None)
            elif isinstance(message, Drain):
                entry.drop()
            elif isinstance(message, AtOnce):
                feed.hold(message.rows)
    except ChannelClosed:
        _end_group()


class _Leaving:
    """Sends outcomes from a thread of its own: what comes up while it sends goes in one message."""

    def __init__(
        self,
        channel: Channel,
        feed: QueueFeed,
        judge: Judge,
        engine: Engine,
        secrets: Secrets,
    ) -> None:
        self._channel, self._feed, self._judge = channel, feed, judge
        self._secrets = secrets
        self._counters: Callable[[], dict[str, Any]] = getattr(engine, "counters", dict)
        self._queue: queue.SimpleQueue[list[Outcome] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="leaving", daemon=True)
        self._beats = 0
        self._minds_time = bool(getattr(engine, "minds_time", False))

    def start(self) -> None:
        self._thread.start()

    def put(self, outcomes: list[Outcome]) -> None:
        self._queue.put(outcomes)

    def finish(self) -> None:
        """Wait until all is sent."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._send_all()
        except ChannelClosed:
            return
        # Nothing would leave any more while rows go on coming in: end here, and say why.
        except Exception as error:
            sys.stderr.write(self._secrets.hidden(traceback.format_exc()))
            with contextlib.suppress(ChannelClosed):
                self._channel.send(_fatal(error, self._secrets))
            _end_group()

    def _send_all(self) -> None:
        due = 0.0
        while (outcomes := self._gather()) is not None:
            self._feed.note_answered(len(outcomes))
            # Before what may be the last outcomes: behind them nobody may be listening.
            if time.monotonic() >= due or self._feed.answered == self._feed.taken:
                due = time.monotonic() + _GAUGE_S
                self._channel.send(self._gauge())
            if outcomes:
                outcomes = list(map(self._without_secrets, outcomes))
                self._channel.send_outcomes(pack(self._judge.judged(outcomes)))
        self._channel.send(self._gauge())

    def _without_secrets(self, outcome: Outcome) -> Outcome:
        """A server's words may repeat the key that it was sent."""
        if outcome.error is None:
            return outcome
        return msgspec.structs.replace(outcome, error=self._secrets.hidden(outcome.error))

    def _gather(self) -> list[Outcome] | None:
        """All that waits, at least one list, or an empty one after a while without any; None at the end."""
        try:
            gathered = self._queue.get(timeout=_GAUGE_S)
        except queue.Empty:
            return []
        if gathered is None:
            return None
        while not self._queue.empty():
            more = self._queue.get()
            if more is None:
                self._queue.put(None)
                break
            gathered = gathered + more
        return gathered

    def _gauge(self) -> Message:
        feed = self._feed
        in_flight = feed.taken - feed.answered
        told = self._counters()
        if self._minds_time:
            self._beats += 1
            told = {**told, "steps": self._beats}
        return Gauge(in_flight, feed.waiting(), time.process_time(), **told)


def _fatal(error: Exception, secrets: Secrets) -> Fatal:
    """The error with its fields, so that the parent can raise it again."""
    if isinstance(error, errors.RowmillError):
        with contextlib.suppress(TypeError):
            msgspec.msgpack.encode(error.fields)
            fields = {
                name: secrets.hidden(value) if isinstance(value, str) else value
                for name, value in error.fields.items()
            }
            return Fatal(type(error).__name__, fields)
    # The words of a foreign error may hold a row's text; its class and place do not.
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return Fatal("EngineDied", {"reason": f"{type(error).__name__} at {place}"})


def _die_with_parent(life_fd: int) -> None:
    """Let the kernel kill this group when the parent's end of the pipe closes, however it dies.

    A thread that waits for the end of the channel does the same, but cannot run while a library holds the
    interpreter; PR_SET_PDEATHSIG takes one process and fires when the parent's *thread* ends.
    """
    with contextlib.suppress(OSError):
        fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp())
        flags = fcntl.fcntl(life_fd, fcntl.F_GETFL)
        fcntl.fcntl(life_fd, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
        # The parent may be gone already: then the pipe is at its end, and no signal comes.
        with contextlib.suppress(BlockingIOError):
            if os.read(life_fd, 1) == b"":
                _end_group()


def _end_group() -> None:
    with contextlib.suppress(OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def _numbers(words: Iterable[str]) -> tuple[int, int]:
    socket_fd, life_fd = (int(word) for word in words)
    return socket_fd, life_fd


if __name__ == "__main__":
    status = main(*_numbers(sys.argv[1:3]))
    # Threads of a native library may hang at the interpreter's end; all is said, so go.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
