"""Rows in the order they are fed, engines side by side on one GPU -> how long it takes, and what is found in the cache.

Promises: plays the scheduler of vLLM step by step: rows that run first, then those that wait, in order, as seats, tokens of a
step and blocks allow; the newest row gives way where blocks end. Nothing is drawn: the same rows give the same figures.
Knows nothing of: files, texts.
Memory: the rows given. Time: a few microseconds a step and a row.
Source: vLLM 0.33 `v1/core/sched/scheduler.py`; PAPERS as named in size/steps.py. A step takes the longer of what the GPU and
what the processor beside it need (asynchronous scheduling); engines on one GPU take turns on it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import msgspec

from rowmill.forecast.blocks import BLOCK
from rowmill.forecast.pool import Pool, Run
from rowmill.size.steps import OVERLAP, TURN_S, StepModel


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is told."""

    seats: int
    step_tokens: int
    pool_tokens: int
    """Of each engine; 0: as much as is needed."""
    shares_prefixes: bool = True


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What a run took."""

    seconds: float
    steps: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    gpu_s: float
    """How long the GPU was at work."""
    tail_s: float
    """How long fewer rows than a tenth of the seats, or of the rows, were left."""

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens found in the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class Fed(msgspec.Struct):
    """Rows in the order they are fed to one engine."""

    prompts: Sequence[int]
    """Tokens of each prompt."""
    answers: Sequence[int]
    runs: Sequence[Sequence[Run]] = ()
    """Shared runs of blocks of each row; empty: nothing is shared."""
    ready_s: Sequence[float] = ()
    """When each row is there; empty: all from the beginning on."""


def play(fed: Sequence[Fed], settings: Settings, model: StepModel) -> Played:
    """Play engines through that share one GPU, one for each part of the rows."""
    engines = [_Engine(part, settings, model) for part in fed if len(part.prompts)]
    turns = [(0.0, i) for i in range(len(engines))]
    gpu_free = gpu_s = 0.0
    while turns:
        now, i = heapq.heappop(turns)
        on_gpu, beside = engines[i].step(now)
        if on_gpu:
            on_gpu += TURN_S if len(engines) > 1 else 0.0
            gpu_free, gpu_s = max(now, gpu_free) + on_gpu, gpu_s + on_gpu
            hidden = OVERLAP * min(on_gpu, beside)
            end = max(gpu_free, now + on_gpu + beside - hidden)
            engines[i].ended_at(end)
            heapq.heappush(turns, (end, i))
        elif (ready := engines[i].next_ready) is not None:
            heapq.heappush(turns, (max(now, ready), i))
    return Played(
        seconds=max((one.end for one in engines), default=0.0),
        steps=sum(one.steps for one in engines),
        prompt_tokens=sum(sum(part.prompts) for part in fed),
        cached_tokens=sum(one.cached for one in engines),
        output_tokens=sum(sum(part.answers) for part in fed),
        preemptions=sum(one.preemptions for one in engines),
        gpu_s=gpu_s,
        tail_s=max((one.end - (one.tail_from or one.end) for one in engines), default=0.0),
    )


class _Engine:
    """One engine with its rows."""

    def __init__(self, fed: Fed, settings: Settings, model: StepModel) -> None:
        self._fed, self._settings, self._model = fed, settings, model
        blocks = settings.pool_tokens // BLOCK or 1 << 40
        self._pool = Pool(blocks, keeps=settings.shares_prefixes)
        self._waiting = 0
        self._again: deque[int] = deque()
        """Rows that gave way, before those that wait."""
        self._filling: deque[list[int]] = deque()
        """[row, tokens of its prompt still to be computed] of rows that run."""
        self._ends: list[tuple[int, int]] = []
        """(step in which it ends, row) of rows past their prompts, a heap."""
        self._entered: dict[int, int] = {}
        """Row that runs -> the step in which it began to answer; 0 before."""
        self._context = 0.0
        self._seen: set[int] = set()
        """Rows that entered once: one that gave way finds its own blocks again, which saves nothing."""
        self.steps = self.cached = self.preemptions = 0
        self.end = 0.0
        self.tail_from: float | None = None
        self._tail_rows = max(1, min(settings.seats, len(fed.prompts)) // 10)

    @property
    def next_ready(self) -> float | None:
        """When the next row is there; None where none is left."""
        if self._waiting >= len(self._fed.prompts):
            return None
        return self._fed.ready_s[self._waiting] if self._fed.ready_s else 0.0

    def ended_at(self, moment: float) -> None:
        """Note when the last step ended."""
        self.end = moment
        left = len(self._entered) + len(self._fed.prompts) - self._waiting
        if self.tail_from is None and left <= self._tail_rows:
            self.tail_from = moment

    def step(self, now: float) -> tuple[float, float]:
        """One step. Returns: seconds on the GPU and beside it; zeros where no row is there."""
        decoding = len(self._ends)
        room = max(0, self._settings.step_tokens - decoding)
        self._grow(decoding)
        new, pairs, entered, finished = self._fill(room, now)
        rows = len(self._entered)
        if not rows:
            return 0.0, 0.0
        self.steps += 1
        gpu = self._model.gpu_s(
            tokens=len(self._ends) + new,
            rows=len(self._ends) + len(finished),
            context=self._context,
            prompt_pairs=pairs,
        )
        self._answer(finished)
        return gpu, self._model.beside_s(rows, len(entered), sum(map(self._blocks, entered)))

    def _grow(self, decoding: int) -> None:
        """Blocks for the next token of each row that answers; the newest row gives way where there are none."""
        if not decoding or self._pool.grow(decoding / BLOCK):
            return
        while self._pool.held > self._pool.blocks and len(self._entered) > 1:
            self._give_way(next(reversed(self._entered)))

    def _give_way(self, row: int) -> None:
        began = self._entered.pop(row)
        self.preemptions += 1
        done = self.steps - began if began else 0
        if began:
            self._ends = [one for one in self._ends if one[1] != row]
            heapq.heapify(self._ends)
            self._context -= self._fed.prompts[row] + done
        else:
            self._filling = deque(one for one in self._filling if one[0] != row)
        self._pool.leave(self._runs(row), self._own(row) + done / BLOCK)
        self._again.appendleft(row)

    def _fill(self, room: int, now: float) -> tuple[int, float, list[int], list[int]]:
        """Prompts for this step. Returns: their tokens, pairs of tokens, rows that entered, rows whose prompts are through."""
        new, pairs = 0, 0.0
        entered: list[int] = []
        finished: list[int] = []
        for one in list(self._filling):
            room, new, pairs = self._computed(one, room, new, pairs, finished)
        while room > 0 and len(self._entered) < self._settings.seats:
            row = self._next(now)
            if row is None:
                break
            entered.append(row)
            one = [row, self._enter(row)]
            self._filling.append(one)
            room, new, pairs = self._computed(one, room, new, pairs, finished)
        return new, pairs, entered, finished

    def _computed(
        self, one: list[int], room: int, new: int, pairs: float, finished: list[int]
    ) -> tuple[int, int, float]:
        row, left = one
        tokens = min(left, room)
        if tokens <= 0:
            return room, new, pairs
        before = self._fed.prompts[row] - left
        one[1] = left - tokens
        if not one[1]:
            self._filling.remove(one)
            finished.append(row)
        return room - tokens, new + tokens, pairs + tokens * (before + tokens / 2)

    def _next(self, now: float) -> int | None:
        """The next row that is there and for which there are blocks; it is taken from those that wait."""
        ready = self.next_ready
        if self._again:
            row = self._again[0]
        elif ready is not None and ready <= now:
            row = self._waiting
        else:
            return None
        if self._entered and not self._pool.fits(self._runs(row), self._own(row)):
            return None
        if self._again:
            self._again.popleft()
        else:
            self._waiting += 1
        return row

    def _enter(self, row: int) -> int:
        """Take its blocks. Returns: tokens of its prompt that must be computed."""
        found = BLOCK * self._pool.enter(self._runs(row), self._own(row))
        self.cached += found if row not in self._seen else 0
        self._seen.add(row)
        self._entered[row] = 0
        return max(1, self._fed.prompts[row] - found)

    def _answer(self, finished: list[int]) -> None:
        """Each row past its prompt has a token more; those that have all leave."""
        self._context += len(self._ends)
        for row in finished:
            # Its first token comes with the end of its prompt.
            self._entered[row] = self.steps
            self._context += self._fed.prompts[row] + 1
            heapq.heappush(self._ends, (self.steps + self._fed.answers[row] - 1, row))
        while self._ends and self._ends[0][0] <= self.steps:
            _, row = heapq.heappop(self._ends)
            tokens = self._fed.answers[row]
            del self._entered[row]
            self._context -= self._fed.prompts[row] + tokens
            self._pool.leave(self._runs(row), self._own(row) + (tokens - 1) / BLOCK)

    def _runs(self, row: int) -> Sequence[Run]:
        return self._fed.runs[row] if self._fed.runs else ()

    def _blocks(self, row: int) -> float:
        return self._fed.prompts[row] / BLOCK

    def _own(self, row: int) -> float:
        """Blocks of a prompt that it shares with nobody."""
        shared = sum(blocks for _, blocks in self._runs(row))
        return max(0.0, self._blocks(row) - shared) + 0.5
