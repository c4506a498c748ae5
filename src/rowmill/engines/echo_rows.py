"""Prompts -> Outcomes of the echo engine, row by row: with choices, samples, delays and faults.

Promises: no more than `seats` rows are between start and answer; a seat is taken again at once.
Knows nothing of: the fast way for plain batches, see echo.py.
Memory: the rows taken and not answered.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.echo_script import ENDS, EchoOptions, Fault, StartLog
from rowmill.engines.protocol import Feed
from rowmill.engines.vectors import answered_with, parts_of
from rowmill.rows import Choice, Ids, Outcome, Pair, Piece, Prompts, Sampling

_POLL_S = 0.002
_TRIES = 6

Decode = Callable[[Any], str]


class EchoRows:
    """Rows one by one."""

    def __init__(self, engine: EngineConfig, options: EchoOptions, seats: int) -> None:
        self._decode = _numbers if options.answer == "numbers" else _open_decode(engine)
        self._faults = [one for one in options.faults if seats > one.above_seats]
        self._longer = options.longer
        self._dimensions = _numbers_a_text(engine, options)
        self._can_end = any(fault.action in ENDS for fault in self._faults)
        is_counting = any(fault.action in ENDS and fault.times for fault in self._faults)
        self._log = StartLog(options.log, is_counting=is_counting)

    def run(self, feed: Feed, *, seats: int, delay_s: float) -> Iterator[list[Outcome]]:
        """Answer rows, each `delay_s` after its start."""
        waiting: deque[Prompts] = deque()
        seated: deque[tuple[float, Prompts]] = deque()
        num_seated, has_ended = 0, False
        while not (has_ended and not waiting and not seated):
            while not has_ended and num_seated < seats and not waiting:
                prompts = feed.take(wait=not seated)
                has_ended = prompts is None
                if not prompts:
                    break
                waiting.append(prompts)
            while waiting and num_seated < seats:
                part = _cut(waiting, seats - num_seated)
                num_seated += len(part)
                seated.append((time.monotonic() + delay_s, part))
                self._log_start(part)
            while seated and seated[0][0] <= time.monotonic():
                due, part = seated.popleft()
                num_seated -= len(part)
                yield self._answers(part, due - delay_s)
            if seated:
                time.sleep(min(_POLL_S, max(0.0, seated[0][0] - time.monotonic())))

    def answer_all(self, prompts: Prompts) -> list[Outcome]:
        """Answer a batch now."""
        self._log_start(prompts)
        return self._answers(prompts, time.monotonic())

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _log_start(self, prompts: Prompts) -> None:
        starts = self._log.started(prompts.keys)
        if not self._can_end:
            return
        for ids, count in zip(prompts.row_ids(), starts, strict=True):
            fault = self._fault_of(ids)
            if fault and fault.action in ENDS and not 0 < fault.times < count:
                _end(fault.action)

    def _answers(self, prompts: Prompts, began: float) -> list[Outcome]:
        outcomes = []
        seconds = round(time.monotonic() - began, 6)
        for i, ids in enumerate(prompts.row_ids()):
            fault = self._fault_of(ids) if self._faults else None
            if fault and fault.action == "hang":
                continue
            if fault and fault.action in ENDS:
                fault = None  # It ended the engine as often as it was to.
            key = prompts.keys[i]
            times = self._times_of(ids) if self._longer else 1
            pairs, pieces = prompts.pairs.get(key, []), prompts.pieces.get(key, [])
            row = _Row(key, ids, prompts.max_tokens[i], seconds, times, pairs, pieces)
            sampling = prompts.samplings[prompts.sampling_of[i]]
            outcomes.append(self._outcome(row, sampling, fault))
        return outcomes

    def _fault_of(self, ids: Ids) -> Fault | None:
        text = self._decode(ids)
        return next((fault for fault in self._faults if fault.contains in text), None)

    def _times_of(self, ids: Ids) -> int:
        text = self._decode(ids)
        return next((one.times for one in self._longer if one.contains in text), 1)

    def _outcome(self, row: _Row, sampling: Sampling, fault: Fault | None) -> Outcome:
        if fault and fault.action == "error":
            return row.failed(errors.Refused(reason="a scripted fault refuses this row"), 1)
        if fault and not fault.times:
            reason = f"a scripted fault, still there after {_TRIES} attempts"
            return row.failed(errors.GaveUp(reason=reason), _TRIES)
        if self._dimensions:
            return self._vector(row, fault)
        choices = [self._choice(row, sampling, index) for index in range(sampling.n)]
        has_more = sampling.n > 1 or sampling.return_token_ids
        return Outcome(
            key=row.key,
            status="ok",
            text=choices[0].text,
            finish_reason=choices[0].finish_reason,
            choices=choices if has_more else [],
            prompt_tokens=len(row.ids),
            output_tokens=len(row.tail) * sampling.n,
            max_tokens=row.max_tokens,
            attempts=1 + (fault.times if fault else 0),
            seconds=row.seconds,
        )

    def _vector(self, row: _Row, fault: Fault | None) -> Outcome:
        vectors = [self._drawn(part) for part in parts_of(row.ids, row.pieces, row.pairs)]
        return Outcome(
            key=row.key,
            status="ok",
            prompt_tokens=len(row.ids),
            attempts=1 + (fault.times if fault else 0),
            seconds=row.seconds,
            **answered_with(vectors, row.pieces, row.pairs),
        )

    def _drawn(self, ids: Ids) -> bytes:
        drawn = hashlib.shake_256(ids.tobytes()).digest(self._dimensions)
        return (np.frombuffer(drawn, np.uint8).astype("<f4") / 128 - 1).tobytes()

    def _choice(self, row: _Row, sampling: Sampling, index: int) -> Choice:
        tail = row.tail
        reason = "length" if len(tail) < len(row.ids) else "stop"
        if sampling.choices:
            number = zlib.crc32(row.ids.tobytes()) + index
            text, reason = sampling.choices[number % len(sampling.choices)], "stop"
        else:
            text = self._decode(tail) + (f"#{index}" if index else "")
        for stop in sampling.stop:
            before, found, _ = text.partition(stop)
            text, reason = (before, "stop") if found else (text, reason)
        ids = tail.tolist() if sampling.return_token_ids else None
        return Choice(index=index, text=text, finish_reason=reason, token_ids=ids)


class _Row(msgspec.Struct):
    """A row while it is answered."""

    key: int
    ids: Ids
    max_tokens: int
    seconds: float
    times: int = 1
    pairs: list[Pair] = []
    pieces: list[Piece] = []

    @property
    def tail(self) -> Ids:
        """The tokens that are the answer."""
        count = min(self.max_tokens or len(self.ids), len(self.ids))
        once = self.ids[len(self.ids) - count :]
        if self.times == 1:
            return once
        return np.tile(once, self.times)[: self.max_tokens or None]

    def failed(self, error: errors.RowError, attempts: int) -> Outcome:
        """The outcome of a row that gets no answer."""
        return Outcome(
            key=self.key,
            status="error",
            prompt_tokens=len(self.ids),
            max_tokens=self.max_tokens,
            attempts=attempts,
            seconds=self.seconds,
            error_kind=error.kind,
            error=str(error),
        )


def _numbers_a_text(engine: EngineConfig, options: EchoOptions) -> int:
    """Numbers that are drawn for a text; 0 where answers are texts."""
    if engine.is_asked_for_texts:
        return 0
    if engine.embed is not None:
        return options.dimensions
    return len(engine.classify.names) if engine.classify is not None else 1


def _end(action: str) -> None:
    """End as engines end.

    Raises:
        MemoryError: out of memory.
    """
    if action == "oom":
        raise MemoryError
    if action == "freeze":
        threading.Event().wait()
    os.kill(os.getpid(), signal.SIGKILL)


def _cut(waiting: deque[Prompts], room: int) -> Prompts:
    """The next rows, at most `room`."""
    prompts = waiting.popleft()
    if len(prompts) <= room:
        return prompts
    waiting.appendleft(prompts.slice(room, len(prompts)))
    return prompts.slice(0, room)


def _open_decode(engine: EngineConfig) -> Decode:
    if (engine.tokenizer or "bytes") == "bytes":
        return _decode_bytes
    from rowmill.tokens import open_tokenizer

    tokenizer = open_tokenizer(engine)
    if tokenizer is None:
        reason = (
            "engine `echo` needs `engine.tokenizer`, a folder or `bytes`, to tell its answers"
        )
        raise errors.ConfigError(reason=reason)
    return tokenizer.decode


def _numbers(ids: Ids) -> str:
    return " ".join(map(str, ids.tolist()))


def _decode_bytes(ids: Ids) -> str:
    """Text of byte tokens; a character that is cut is left out."""
    return ids.astype(np.uint8).tobytes().decode("utf-8", "ignore")
