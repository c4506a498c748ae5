"""Rows -> requests in flight -> outcomes, in one asyncio loop.

Promises: never more than `seats` requests in flight, a free seat is taken at once; a row that waits for
another attempt holds no seat, no task and no connection; an endpoint that cannot be reached at all is a
pause of every row, not a failed attempt of each.
Knows nothing of: where rows come from, where outcomes go.
Memory: the rows taken and not answered; a task a seat, none a row.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines.http_answer import Answer, Asked, check_answer, read_answer
from rowmill.engines.http_body import Bodies
from rowmill.engines.http_gauges import watch
from rowmill.engines.http_groups import Group, Row, joined, shared_out
from rowmill.engines.http_lanes import Lane, Lanes
from rowmill.engines.http_options import address
from rowmill.engines.http_told import Told
from rowmill.engines.http_wire import Unreachable, Wire
from rowmill.engines.retry import GiveUp, Policy, after_failure, asked_wait
from rowmill.engines.vectors import answered_with
from rowmill.rows import NULL, Outcome, Pair, Prompts

Deliver = Callable[[list[Outcome]], None]

_HAND_OVER_S = 0.005
_TICK_S = 0.1
TOO_LARGE = 413


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are asked."""

    model: str
    outage_s: float
    policy: Policy
    streams: bool = False
    keeps_body: bool = False
    embeds: bool = False
    texts: int = 1
    """Most texts to embed in one request."""
    scores: str = ""
    """How pairs are asked for, `rerank` or `score`; empty where rows are none."""
    label_tokens: tuple[int, ...] = ()
    """Of each label, where labels are weighed."""


class Requests:
    """All that is asked. Every method runs in the loop."""

    def __init__(
        self, lanes: Lanes, settings: Settings, *, wire: Wire, deliver: Deliver, told: Told
    ) -> None:
        self._lanes, self._settings, self._wire = lanes, settings, wire
        self._deliver, self._told = deliver, told
        self._bodies = Bodies(settings.model, streams=settings.streams, pairs=settings.scores)
        self._loop = asyncio.get_running_loop()
        self._batches: deque[tuple[Prompts, int]] = deque()
        self._again: deque[Group] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._seats: set[asyncio.Task[None]] = set()
        self._open_rows = 0
        self._has_ended = False
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self._done: list[Outcome] = []
        self._most_texts = settings.texts

    def add(self, prompts: Prompts) -> None:
        """More rows."""
        if len(prompts):
            self._open_rows += len(prompts)
            self._batches.append((prompts, 0))
            self._wake()

    def end(self) -> None:
        """No more rows will come."""
        self._has_ended = True
        self._see_end()

    async def run(self) -> None:
        """Ask until all is answered.

        Raises:
            Stopped: An endpoint lets nobody in.
        """
        watching = {self._loop.create_task(watch(lane, self._wire)) for lane in self._lanes.all}
        self._tick()
        await self._over.wait()
        tasks = self._seats | watching
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._hand_over()
        if self._error is not None:
            raise self._error

    # -- seats --------------------------------------------------------------------------

    def _wake(self) -> None:
        """Let as many seats look for a row as endpoints have room; make seats that are missing."""
        now = self._loop.time()
        room = sum(lane.room(now) for lane in self._lanes.all)
        room = min(room, len(self._again) + sum(len(p) - i for p, i in self._batches))
        for _ in range(room):
            while self._idle and self._idle[0].done():
                self._idle.popleft()
            if self._idle:
                self._idle.popleft().set_result(None)
            elif len(self._seats) < self._lanes.ceiling:
                task = self._loop.create_task(self._sit())
                self._seats.add(task)
                task.add_done_callback(self._stood_up)
            else:
                return

    def _stood_up(self, task: asyncio.Task[None]) -> None:
        """A seat is gone: at the end, or because of an error that nobody expected."""
        self._seats.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._stop(task.exception())

    def _stop(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._over.set()

    async def _sit(self) -> None:
        """One seat: row after row."""
        while True:
            turn = self._next()
            if turn is not None:
                await self._attempt(*turn)
            else:
                waiting = self._loop.create_future()
                self._idle.append(waiting)
                await waiting

    def _next(self) -> tuple[Group, Lane] | None:
        """The next row to ask, and where; None while there is none, or no room."""
        if not (self._again or self._batches):
            return None
        free = self._lanes.with_room(self._loop.time())
        if not free:
            return None
        row = self._again.popleft() if self._again else self._first()
        lane = self._lanes.pick(free, row.asked.body, row.failed_at)
        lane.begin(row.key, self._loop.time())
        return row, lane

    def _first(self) -> Group:
        """The next row that was not asked yet, with those behind it that go into the same request."""
        prompts, i = self._batches[0]
        rows = [_row(prompts, i)]
        stop, texts = i + 1, rows[0].num_texts
        which, field = prompts.sampling_of[i], prompts.wire_fields[i]
        while (
            texts < self._most_texts
            and stop < len(prompts)
            and (prompts.sampling_of[stop], prompts.wire_fields[stop]) == (which, field)
        ):
            rows.append(_row(prompts, stop))
            stop, texts = stop + 1, texts + rows[-1].num_texts
        if stop < len(prompts):
            self._batches[0] = (prompts, stop)
        else:
            self._batches.popleft()
        return Group(rows, self._asked(rows, field))

    def _asked(self, rows: list[Row], field: str) -> Asked:
        sampling, most = rows[0].sampling, rows[0].max_tokens
        path, body = self._bodies.build(field, joined(rows), sampling, most)
        own = self._settings
        return Asked(path, body, own.keeps_body, own.embeds, bool(own.scores), own.label_tokens)

    def _tick(self) -> None:
        """What only time brings: windows that grow, endpoints that may be tried again, outages that last."""
        now = self._loop.time()
        for lane in self._lanes.all:
            lane.tick(now)
        if self._lanes.down_for(now) >= self._settings.outage_s:
            self._fail_waiting()
        # Room comes in many ways, and a seat that found none sleeps until it is told.
        self._wake()
        self._told.look(self._lanes.all)
        self._loop.call_later(_TICK_S, self._tick)

    # -- one attempt --------------------------------------------------------------------

    async def _attempt(self, row: Group, lane: Lane) -> None:
        now = self._loop.time()
        row.began = now if row.began < 0 else row.began
        row.attempts += 1
        answer = None
        try:
            answer = await self._ask(row, lane)
            check_answer(answer, row.sampling)
        except errors.Transient as error:
            self._try_again(row, lane, error)
        except errors.RowError as error:
            lane.answered(row.key, self._loop.time())
            if len(row.rows) > 1:
                self._halve(row, error)
            else:
                self._fail(row, error, answer)
        except errors.Stopped as error:
            self._stop(error)
        else:
            now = self._loop.time()
            lane.answered(row.key, now)
            ours = sum(one.prompt_tokens for one in row.rows)
            self._told.count_tokens(ours, answer.prompt_tokens)
            self._close(list(_outcomes(row, answer, now)))
        finally:
            lane.end(row.key)

    async def _ask(self, row: Group, lane: Lane) -> Answer:
        """One request.

        Raises:
            RowError: The endpoint said no for good.
            Stopped: It says no to everybody.
            Transient: It may answer another time.
        """
        asked = row.asked
        response = await self._wire.post(address(lane.root, asked.path), asked.body)
        kind = response.headers.get("Content-Type", "")
        try:
            return read_answer(response.status, response.body, asked, content_type=kind)
        except errors.Transient as error:
            error.fields["wait_s"] = asked_wait(response.headers, now=datetime.now(UTC))
            raise
        except errors.Refused as error:
            if response.status == 403 and not lane.has_answered:
                reason = f"the endpoint lets nobody in: {error}; see to `engine.api_key`"
                raise errors.Stopped(reason=reason) from error
            raise

    # -- failures -----------------------------------------------------------------------

    def _try_again(self, row: Group, lane: Lane, error: errors.Transient) -> None:
        now = self._loop.time()
        row.failed_at = lane
        lane.failed()
        if isinstance(error, Unreachable):
            # Nobody listens: that is no attempt of the row's.
            row.attempts -= 1
            lane.fall(row.key, now, str(error))
            self._told.count_retry(error)
            self._put_back(row)
            return
        if isinstance(error, errors.RateLimited | errors.TimedOut):
            self._loop.call_later(lane.refused(), self._cooled, lane)
        if not isinstance(error, errors.RateLimited):
            lane.must_retry(row.key, now, str(error))
        decision = after_failure(
            self._settings.policy,
            attempts=row.attempts - row.splits,
            elapsed_s=now - row.began,
            retry_after_s=error.fields.get("wait_s"),
            draw=random.random,
            is_well=lane.is_well,
        )
        if isinstance(decision, GiveUp) and len(row.rows) > 1:
            self._halve(row, error)
        elif isinstance(decision, GiveUp):
            self._fail(row, errors.GaveUp(reason=f"{error}; given up: {decision.reason}"))
        else:
            self._told.count_retry(error)
            self._loop.call_later(decision.seconds, self._put_back, row)

    def _halve(self, group: Group, error: errors.RowmillError) -> None:
        """Ask in two requests what is refused in one: for its size, or for one of its texts."""
        if error.fields.get("status") == TOO_LARGE:
            self._most_texts = min(self._most_texts, max(1, len(group.rows) // 2))
        for rows in group.halves():
            asked = self._asked(rows, "input")
            half = Group(rows, asked, group.attempts, group.attempts, group.began)
            self._again.append(half)
        self._wake()

    def _cooled(self, lane: Lane) -> None:
        lane.cooled()
        self._wake()

    def _put_back(self, row: Group) -> None:
        self._again.append(row)
        self._wake()

    def _fail_waiting(self) -> None:
        """No endpoint has answered for so long that rows are no longer held back for one."""
        rows = [*self._again]
        self._again.clear()
        while self._batches:
            rows.append(self._first())
        why = self._lanes.all[0].reason
        limit = f"so for {self._settings.outage_s:g} s (`engine.outage_s`)"
        for row in rows:
            row.began = self._loop.time() if row.began < 0 else row.began
            self._fail(row, errors.GaveUp(reason=f"{why}; given up: {limit}"))

    def _fail(self, group: Group, error: errors.RowError, answer: Answer | None = None) -> None:
        body = answer.body if answer else msgspec.Raw(error.fields.get("body", NULL))
        outcomes = [
            Outcome(
                key=row.key,
                status="error",
                choices=answer.choices if answer else [],
                prompt_tokens=answer.prompt_tokens if answer else row.prompt_tokens,
                output_tokens=answer.output_tokens if answer else 0,
                max_tokens=row.max_tokens,
                attempts=group.attempts,
                seconds=round(self._loop.time() - group.began, 6),
                error_kind=error.kind,
                error=str(error),
                body=body,
            )
            for row in group.rows
        ]
        self._close(outcomes)

    # -- outcomes -----------------------------------------------------------------------

    def _close(self, outcomes: list[Outcome]) -> None:
        self._open_rows -= len(outcomes)
        if not self._done:
            self._loop.call_later(_HAND_OVER_S, self._hand_over)
        self._done += outcomes
        self._see_end()

    def _see_end(self) -> None:
        if self._has_ended and not self._open_rows:
            self._over.set()

    def _hand_over(self) -> None:
        """Give outcomes on together: a switch of thread for each would cost more than its request."""
        if self._done:
            done, self._done = self._done, []
            self._deliver(done)


def _row(prompts: Prompts, i: int) -> Row:
    key, start = prompts.keys[i], int(prompts.stops[i - 1]) if i else 0
    return Row(
        key,
        int(prompts.stops[i]) - start,
        prompts.max_tokens[i],
        prompts.samplings[prompts.sampling_of[i]],
        prompts.wires[i],
        prompts.pieces.get(key, []),
    )


def _outcomes(group: Group, answer: Answer, now: float) -> Iterator[Outcome]:
    if not answer.vectors:
        yield _outcome(group, group.rows[0], answer, now, answer.prompt_tokens)
        return
    for row, (vectors, tokens) in zip(group.rows, shared_out(group.rows, answer), strict=True):
        outcome = _outcome(group, row, answer, now, row.prompt_tokens or tokens)
        if group.asked.is_scored:
            vectors, pairs = answer.vectors, [Pair(0, 0)]
            yield msgspec.structs.replace(outcome, **answered_with(vectors, pairs=pairs))
        else:
            yield msgspec.structs.replace(outcome, **answered_with(vectors, row.pieces))


def _outcome(group: Group, row: Row, answer: Answer, now: float, tokens: int) -> Outcome:
    sampling = row.sampling
    has_more = (
        len(answer.choices) > 1 or sampling.return_token_ids or sampling.logprobs is not None
    )
    fields: dict[str, Any] = {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "choices": answer.choices if has_more else [],
        "reasoning": answer.choices[0].reasoning if answer.choices else None,
        "reasoning_tokens": answer.reasoning_tokens,
        "tool_calls": answer.choices[0].tool_calls if answer.choices else [],
    }
    return Outcome(
        key=row.key,
        status="ok",
        **fields,
        prompt_tokens=tokens or row.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        output_tokens=answer.output_tokens,
        max_tokens=row.max_tokens,
        attempts=group.attempts,
        seconds=round(now - group.began, 6),
        body=answer.body,
    )
