"""Rows of a running program -> their answers, through the same stations, without a run on the disk.

Promises: one answer a row, in the order of the rows; a bad row is an answer that says so.
Memory: rows in flight, and those answered before an earlier one.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rowmill.config import Job
from rowmill.engines import place
from rowmill.engines.care import care_of
from rowmill.engines.fleet import Fleet
from rowmill.engines.warm import WarmFleet
from rowmill.executors.opening import understand
from rowmill.executors.wording import Words
from rowmill.feed import Feed
from rowmill.outcomes import pack
from rowmill.pipeline import each, rejected
from rowmill.plan import plan
from rowmill.rows import Outcome, Row
from rowmill.validate.recipe import id_columns
from rowmill.validate.salvage import Salvage
from rowmill.write.form import answer_form_of
from rowmill.write.results import ResultLines, key_start

CHUNK_ROWS = 256


def infer(rows: Iterable[Mapping[str, Any]], job: Job) -> Iterator[dict[str, Any]]:
    """Answer rows as they come.

    Args:
        rows: objects that JSON can hold; pulled only as fast as the engine has room.
        job: its `source` and `output` are not looked at.

    Returns: each row with rowmill's columns behind its own, in the order of `rows`;
        `rowmill_row` is `row:N`, counted from 1.

    Raises:
        ConfigError: the job cannot be used.
        EngineDied: the engine cannot be started, or dies whatever it is given.
    """
    words = understand(job)
    with tempfile.TemporaryDirectory(prefix="rowmill-") as folder:
        fleet = Fleet(
            place(words.job.engine).replicas,
            log=Path(folder) / "engine.log",
            care=care_of(words.job.run),
        )
        try:
            feed = Feed(fleet.start(), prove_rows=0)
            prefix = words.job.output.prefix
            salvage = Salvage(prefix, id_columns(words.job))
            results = ResultLines(prefix, answer_form_of(words.job), salvage.members)
            conversation = _Conversation(words, fleet, feed)
            for body, outcome in conversation.outcomes(rows, end=fleet.finish):
                yield from map(_decoded, results.lines("row", [_joined(body, outcome)]))
        finally:
            fleet.close()


class Answering:
    """Engines that stay open, for rows that come batch by batch."""

    def __init__(self, job: Job) -> None:
        """Start the engines.

        Raises:
            ConfigError: the job cannot be used.
            EngineDied: an engine cannot be started.
        """
        self._words = understand(job)
        self._folder = tempfile.TemporaryDirectory(prefix="rowmill-")
        log = Path(self._folder.name) / "engine.log"
        self._warm = WarmFleet(self._words.job.engine, log=log)

    def outcomes(self, rows: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """One outcome a row, in the order of the rows; one call at a time.

        Raises:
            EngineDied: the engine dies whatever it is given.
        """
        conversation = _Conversation(
            self._words, self._warm, Feed(self._warm.limits, prove_rows=0)
        )
        return [outcome for _, outcome in conversation.outcomes(rows)]

    @property
    def dimensions(self) -> int:
        """Numbers in each vector; 0 where none are made."""
        return self._warm.limits.dimensions

    def close(self) -> None:
        """End the engines."""
        self._warm.shut()
        self._folder.cleanup()


class _Conversation:
    """Rows out, answers back, in order."""

    def __init__(self, words: Words, fleet: Fleet | WarmFleet, feed: Feed) -> None:
        self._words, self._fleet, self._feed = words, fleet, feed
        # Chunks are small and rows come one by one: equal ones are asked each.
        self._plan = words.job.plan.model_copy(update={"duplicates": "ask"})
        self._waiting: deque[bytes] = deque()
        """Bodies of rows asked and not given back yet, oldest first."""
        self._next_key = 0
        """Of the oldest."""
        self._answers: dict[int, Outcome] = {}
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def outcomes(
        self, rows: Iterable[Mapping[str, Any]], *, end: Callable[[], None] | None = None
    ) -> Iterator[tuple[bytes, Outcome]]:
        """Rows and what became of each, in order.

        Args:
            end: tells the engines that no more rows come; None: they stay, and only this view of them is closed.
        """
        receiver = threading.Thread(target=self._receive, name="rowmill-receive", daemon=True)
        receiver.start()
        for chunk in _chunks(rows):
            self._ask(chunk)
            yield from self._ready(wait=len(self._waiting) > 2 * self._feed.target_rows)
        if end is not None:
            end()
        while self._waiting:
            yield from self._ready(wait=True)
        if end is None:
            self._fleet.close()
        receiver.join()

    def _ask(self, chunk: list[bytes]) -> None:
        first = self._next_key + len(self._waiting)
        self._waiting.extend(chunk)
        rejects: list[Outcome] = []

        def reject(key: int, error: Any) -> None:
            rejects.append(rejected(key, error))

        found = [Row(first + i, line) for i, line in enumerate(chunk)]
        requests = each(found, self._words.recipe, reject)
        prompts = self._words.measure.prompts(
            requests, lambda i, error: reject(requests[i].key, error)
        )
        planned = plan(prompts, self._plan)
        self._take(rejects)
        for batch in planned.batches(self._feed.batch_rows):
            while not self._feed.wait_room(len(batch), 0.2):
                self._raise_error()
            self._feed.sent(len(batch), len(batch.ids))
            self._fleet.submit(batch)

    def _ready(self, *, wait: bool) -> list[tuple[bytes, Outcome]]:
        """Answers that are next in order; with `wait`, at least one."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._error or self._next_key in self._answers)
            self._raise_error()
            ready = []
            while self._waiting and self._next_key in self._answers:
                outcome = self._answers.pop(self._next_key)
                ready.append((self._waiting.popleft(), outcome))
                self._next_key += 1
        return ready

    def _receive(self) -> None:
        try:
            for outcomes in self._fleet.outcomes():
                self._feed.answered(len(outcomes))
                self._take(outcomes.unpack())
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take(self, outcomes: list[Outcome]) -> None:
        with self._changed:
            for outcome in outcomes:
                self._answers[outcome.key] = outcome
            self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _joined(body: bytes, outcome: Outcome) -> tuple[int, bytes, int, bytes]:
    """A row as the results take it."""
    line = pack([outcome]).lines.rstrip(b"\n")
    return outcome.key + 1, body, len(key_start(outcome.key)), line


def _chunks(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    for row in rows:
        chunk.append(_encoded(row))
        if len(chunk) >= CHUNK_ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _encoded(row: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(row)
    except UnicodeEncodeError:
        # Half a surrogate pair: as an escape it can be told of like any other bad row.
        return json.dumps(row).encode()


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return dict(json.loads(line))
