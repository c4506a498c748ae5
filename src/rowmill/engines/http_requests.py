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
import urllib.request
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines.http_answer import Answer, check_answer, read_answer
from rowmill.engines.http_body import Bodies
from rowmill.engines.retry import GiveUp, Policy, after_failure, read_retry_after
from rowmill.rows import Outcome, Prompts, Sampling

Deliver = Callable[[list[Outcome]], None]

_RECONNECT_S = 1.0
_HAND_OVER_S = 0.005


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go and how long they may take."""

    root: str
    headers: dict[str, str]
    model: str
    seats: int
    connect_s: float
    timeout_s: float
    outage_s: float
    policy: Policy


class _Row(msgspec.Struct):
    key: int
    prompt_tokens: int
    max_tokens: int
    sampling: Sampling
    path: str
    body: bytes
    attempts: int = 0
    began: float = -1.0


class Requests:
    """All that is asked of one endpoint. Every method runs in the loop."""

    def __init__(self, endpoint: Endpoint, deliver: Deliver) -> None:
        self._endpoint = endpoint
        self._deliver = deliver
        self._bodies = Bodies(endpoint.model)
        self._loop = asyncio.get_running_loop()
        self._batches: deque[tuple[Prompts, int]] = deque()
        self._again: deque[_Row] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._open_rows = 0
        self._has_ended = False
        self._down_since = -1.0
        self._done: list[Outcome] = []

    def add(self, prompts: Prompts) -> None:
        """More rows."""
        if len(prompts):
            self._open_rows += len(prompts)
            self._batches.append((prompts, 0))
            self._wake(len(prompts))

    def end(self) -> None:
        """No more rows will come."""
        self._has_ended = True
        self._wake(len(self._idle))

    async def run(self) -> None:
        """Ask until all is answered."""
        import aiohttp

        times = aiohttp.ClientTimeout(
            total=self._endpoint.timeout_s, sock_connect=self._endpoint.connect_s
        )
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._endpoint.headers,
                timeout=times,
                # Where set, proxies are looked up for each request, at more than the request's own cost.
                trust_env=bool(urllib.request.getproxies()),
            ) as session,
            asyncio.TaskGroup() as seats,
        ):
            for _ in range(self._endpoint.seats):
                seats.create_task(self._sit(session))
        self._hand_over()

    async def _sit(self, session: Any) -> None:
        """One seat: row after row."""
        while (row := await self._next()) is not None:
            if row.began < 0:
                row.began = self._loop.time()
            row.attempts += 1
            answer = None
            try:
                answer = await self._ask(session, row)
                check_answer(answer, row.sampling)
            except errors.Transient as error:
                self._try_again(row, error)
            except errors.RowError as error:
                self._fail(row, error, answer)
            else:
                self._close(row, _outcome(row, answer, self._loop.time()))

    async def _next(self) -> _Row | None:
        """The next row to ask; None when all are answered."""
        while not (self._again or self._batches):
            if self._has_ended and not self._open_rows:
                return None
            turn = self._loop.create_future()
            self._idle.append(turn)
            await turn
        if self._again:
            return self._again.popleft()
        prompts, i = self._batches[0]
        if i + 1 < len(prompts):
            self._batches[0] = (prompts, i + 1)
        else:
            self._batches.popleft()
        path, body = self._bodies.build(prompts, i)
        sampling = prompts.samplings[prompts.sampling_of[i]]
        tokens = int(prompts.stops[i]) - (int(prompts.stops[i - 1]) if i else 0)
        return _Row(prompts.keys[i], tokens, prompts.max_tokens[i], sampling, path, body)

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._idle))):
            turn = self._idle.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _ask(self, session: Any, row: _Row) -> Answer:
        """One attempt.

        Raises:
            RowError: The endpoint said no for good.
            Transient: It may answer another time.
        """
        import aiohttp

        url = self._endpoint.root + row.path
        try:
            async with session.post(url, data=row.body, allow_redirects=False) as response:
                self._down_since = -1.0
                status, headers = response.status, response.headers
                body = await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _Unreachable(reason=f"cannot connect to `{url}`: {_cause(error)}") from error
        except TimeoutError as error:
            limit = f"no answer in {self._endpoint.timeout_s:g} s (`engine.timeout_s`)"
            raise errors.TimedOut(reason=limit) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection broke: {type(error).__name__}"
            raise errors.Disconnected(reason=reason) from error
        try:
            return read_answer(status, body)
        except errors.Transient as error:
            error.fields["retry_after"] = headers.get("Retry-After", "")
            raise

    def _try_again(self, row: _Row, error: errors.Transient) -> None:
        now = self._loop.time()
        if isinstance(error, _Unreachable):
            self._wait_for_endpoint(row, error, now)
            return
        header = error.fields.get("retry_after", "")
        decision = after_failure(
            self._endpoint.policy,
            attempts=row.attempts,
            elapsed_s=now - row.began,
            retry_after_s=read_retry_after(header, now=datetime.now(UTC)) if header else None,
            draw=random.random,
        )
        if isinstance(decision, GiveUp):
            self._fail(row, errors.GaveUp(reason=f"{error}; given up: {decision.reason}"))
        else:
            self._loop.call_later(decision.seconds, self._put_back, row)

    def _wait_for_endpoint(self, row: _Row, error: errors.Transient, now: float) -> None:
        """Nobody listens: the attempt does not count, unless that has lasted for `outage_s`."""
        if self._down_since < 0:
            self._down_since = now
        if now - self._down_since >= self._endpoint.outage_s:
            reason = (
                f"{error}; given up: so for {self._endpoint.outage_s:g} s (`engine.outage_s`)"
            )
            self._fail(row, errors.GaveUp(reason=reason))
            return
        row.attempts -= 1
        self._loop.call_later(_RECONNECT_S * (0.5 + random.random()), self._put_back, row)

    def _put_back(self, row: _Row) -> None:
        self._again.append(row)
        self._wake(1)

    def _fail(self, row: _Row, error: errors.RowError, answer: Answer | None = None) -> None:
        outcome = Outcome(
            key=row.key,
            status="error",
            choices=answer.choices if answer else [],
            prompt_tokens=answer.prompt_tokens if answer else row.prompt_tokens,
            output_tokens=answer.output_tokens if answer else 0,
            max_tokens=row.max_tokens,
            attempts=row.attempts,
            seconds=round(self._loop.time() - row.began, 6),
            error_kind=error.kind,
            error=str(error),
        )
        self._close(row, outcome)

    def _close(self, row: _Row, outcome: Outcome) -> None:
        self._open_rows -= 1
        if not self._done:
            self._loop.call_later(_HAND_OVER_S, self._hand_over)
        self._done.append(outcome)
        if self._has_ended and not self._open_rows:
            self._wake(len(self._idle))

    def _hand_over(self) -> None:
        """Give outcomes on together: a switch of thread for each would cost more than its request."""
        if self._done:
            done, self._done = self._done, []
            self._deliver(done)


class _Unreachable(errors.Transient):
    """No connection could be made."""


def _cause(error: Exception) -> str:
    """The system's word for why; the library's own text holds addresses and more."""
    return (getattr(error, "strerror", None) or type(error).__name__).splitlines()[0]


def _outcome(row: _Row, answer: Answer, now: float) -> Outcome:
    first, sampling = answer.choices[0], row.sampling
    has_more = (
        len(answer.choices) > 1 or sampling.return_token_ids or sampling.logprobs is not None
    )
    return Outcome(
        key=row.key,
        status="ok",
        text=first.text,
        finish_reason=first.finish_reason,
        choices=answer.choices if has_more else [],
        prompt_tokens=answer.prompt_tokens or row.prompt_tokens,
        cached_tokens=answer.cached_tokens,
        output_tokens=answer.output_tokens,
        max_tokens=row.max_tokens,
        attempts=row.attempts,
        seconds=round(now - row.began, 6),
    )
