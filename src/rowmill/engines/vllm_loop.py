"""Rows of a feed into vLLM's engine, step by step, and out again.

Promises: rows enter between two steps; what ends vLLM's engine ends this one, so that it is started anew.
Knows nothing of: what rows are for vLLM, nor what they become.
Memory: none of its own. Threads: one steps, one watches vLLM's processes.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import queue
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rowmill import errors
from rowmill.engines.protocol import Feed
from rowmill.engines.vllm_port import Counters
from rowmill.engines.vllm_sockets import remove_sockets
from rowmill.rows import Limits, Outcome, Prompts

_CAUSE = re.compile(r"\b\w*(?:Error|Exception)\b: .*")
_POINTER = re.compile(r"root cause|EngineCore encountered", re.IGNORECASE)
MOST_WORDS = 400
_LOG_TAIL_BYTES = 65536

Item = TypeVar("Item")
"""What ended, with the port's answer."""


class AnyPort(Protocol[Item]):
    """VLLM's engine, as the loop sees it."""

    counters: Counters
    dead: type[BaseException]

    @property
    def is_idle(self) -> bool:
        """Whether vLLM has no row."""
        ...

    def step(self) -> list[Item]:
        """Wait for the next step of the engine; what ended with it."""
        ...

    def close(self) -> None:
        """End the engine's processes."""
        ...


class Loop(Generic[Item]):
    """An open vLLM; what its rows are is for those that follow."""

    _port: AnyPort[Item]

    def __init__(
        self, port: AnyPort[Item], limits: Limits, *, sockets: Path | None = None
    ) -> None:
        self.limits = limits
        self._sockets = sockets
        self._port = port
        self._out: queue.SimpleQueue[list[Item | Outcome] | BaseException | None]
        self._out = queue.SimpleQueue()
        self._is_closed = False
        self._steps = 0

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        for work, name in ((partial(self._step_all, feed), "steps"), (self._watch, "watch")):
            threading.Thread(target=work, name=name, daemon=True).start()
        while True:
            some = self._out.get()
            if isinstance(some, BaseException):
                raise some
            if some is None:
                return
            yield self._outcomes(some)

    def counters(self) -> dict[str, float]:
        """What the scheduler says of itself; see `channel.Gauge`."""
        counters = self._port.counters
        # A gauge leaves with answers: at that moment, rows that ended together have left their seats.
        means = counters.means()
        return {
            "steps": self._steps,
            "running": round(means.running),
            "waiting_rows": round(means.waiting_rows),
            "kv_use": round(means.kv_use, 4),
            "preemptions": counters.preemptions,
            "hit_rate": round(counters.hit_rate, 4),
        }

    def close(self) -> None:
        """End vLLM's processes."""
        self._is_closed = True
        self._port.close()
        remove_sockets(self._sockets)

    def _watch(self) -> None:
        """End with vLLM's engine: one that was killed says nothing, and vLLM's client waits for it for ever."""
        processes = multiprocessing.active_children()
        if not processes:
            return
        multiprocessing.connection.wait([process.sentinel for process in processes])
        codes = [process.exitcode for process in processes if process.exitcode is not None]
        if not self._is_closed:
            reason = f"vLLM's engine ended (exit code {codes[0] if codes else 'unknown'}); see the engine's log"
            self._out.put(errors.EngineDied(reason=reason))

    def _step_all(self, feed: Feed) -> None:
        """Take rows, step, until no row is left and none will come."""
        try:
            has_ended = False
            while not (has_ended and self._port.is_idle):
                if not has_ended:
                    has_ended = self._take_all(feed)
                if not self._port.is_idle:
                    self._put(self._port.step())
                    self._steps += 1
        except self._port.dead as error:
            self._out.put(died(error))
        # Raised again by `run`: the thread must not end without a word.
        except BaseException as error:
            self._out.put(error)
        else:
            self._out.put(None)

    def _take_all(self, feed: Feed) -> bool:
        """Give vLLM what there is now; wait only where it has nothing to do. True: no more will come."""
        while (prompts := feed.take(wait=self._port.is_idle)) is not None:
            if not prompts:
                return False
            self._add_all(prompts)
        return True

    def _add_all(self, prompts: Prompts) -> None:
        """Give rows to vLLM."""
        raise NotImplementedError

    def _put(self, ended: list[Item]) -> None:
        """Let go what ended."""
        raise NotImplementedError

    def _outcomes(self, some: list[Item | Outcome]) -> list[Outcome]:
        """The outcomes of what was let go, made beside the steps."""
        raise NotImplementedError


def died(error: BaseException) -> errors.EngineDied:
    """VLLM's engine is gone; what it said may hold a row's text, so only its kind is told."""
    kind = root_cause().partition(":")[0] or type(error).__name__
    return errors.EngineDied(reason=f"vLLM's engine ended ({kind}); see the engine's log")


def root_cause() -> str:
    """The error that vLLM's processes wrote last, out of the log that this process writes into as well."""
    try:
        with Path("/proc/self/fd/2").resolve(strict=True).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    causes: list[str] = _CAUSE.findall(text)
    # Errors that only point at another one come after it.
    roots = [found for found in causes if not _POINTER.search(found)]
    return (roots or causes or [""])[-1][:MOST_WORDS]
