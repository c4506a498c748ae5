"""Prompts -> Outcomes, by several engines side by side: replicas of one model, on one GPU or on several.

Promises: every row submitted comes back as exactly one outcome, also when a replica cannot be started again:
its rows go to the others; work is shared by tokens left, so that replicas end together.
Knows nothing of: where a replica computes (its environment says that), what becomes of outcomes.
Memory: a number a row in flight. Threads: one a replica receives; with one replica there is none of its own.
"""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from rowmill import errors
from rowmill.engines.care import Care
from rowmill.engines.channel import Gauge
from rowmill.engines.protocol import Replica
from rowmill.engines.supervise import Supervisor
from rowmill.outcomes import Outcomes
from rowmill.rows import Limits, Prompts
from rowmill.size.work import DECODE_WEIGHT, STEP_WEIGHT

MOST_AHEAD = 0.5
"""A replica gets the rows planned for it unless so large a part of them would wait for it alone."""
SPARE_ROWS = 1024
"""Rows that are gone may be remembered beside as many again as are there: below long ones nobody meets them."""
FIRST_GUESS_TOKENS = 256
"""Answers are taken to be so long until some are there."""


class _Load:
    """What one replica has before it."""

    def __init__(self) -> None:
        self._prompts = self._answers = 0.0
        self._rows: dict[int, tuple[int, float]] = {}
        """Key -> tokens of the prompt, and of the answer as it is expected."""
        self._longest: list[tuple[float, int]] = []
        """Answers and keys, a heap, the longest first; rows that are gone are taken out when they are met."""

    def __len__(self) -> int:
        return len(self._rows)

    def cost(self, seats: int) -> float:
        """Of its rows and of the steps they will take, in tokens of a prompt."""
        if len(self._longest) > 2 * len(self._rows) + SPARE_ROWS:
            self._longest = [(-answer, key) for key, (_, answer) in self._rows.items()]
            heapq.heapify(self._longest)
        heap = self._longest
        while heap and heap[0][1] not in self._rows:
            heapq.heappop(heap)
        steps = max(self._answers / seats, -heap[0][0] if heap else 0.0)
        return self._prompts + DECODE_WEIGHT * self._answers + STEP_WEIGHT * steps

    def add(self, prompts: Prompts, expected: list[tuple[int, float]]) -> None:
        self._rows.update(zip(prompts.keys, expected, strict=True))
        for key, (prompt, answer) in zip(prompts.keys, expected, strict=True):
            self._prompts += prompt
            self._answers += answer
            heapq.heappush(self._longest, (-answer, key))

    def settle(self, outcomes: Outcomes) -> None:
        for key in outcomes.keys.tolist():
            prompt, answer = self._rows.pop(key, (0, 0.0))
            self._prompts -= prompt
            self._answers -= answer


class Fleet:
    """Several supervised engines, as one."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        log: Path,
        record: Path | None = None,
        care: Care | None = None,
    ) -> None:
        self._supervisors = [
            Supervisor(
                replica.engine,
                environment=replica.environment,
                log=_numbered(log, i),
                record=_numbered(record, i) if record else None,
                care=care,
            )
            for i, replica in enumerate(replicas)
        ]
        self._living = list(range(len(replicas)))
        self._loads = [_Load() for _ in replicas]
        self._guess = _Guess()
        self._changing = threading.Lock()
        self._is_finished = False
        self._closing = threading.Event()
        self.logs = [_numbered(log, i) for i in range(len(replicas))]

    @property
    def deaths(self) -> int:
        """Times an engine died after it was ready."""
        return sum(one.deaths for one in self._supervisors)

    @property
    def limits(self) -> Limits | None:
        """What the replicas that live can do together, by what they last said."""
        told = [self._supervisors[i].limits for i in list(self._living)]
        known = [limits for limits in told if limits is not None]
        return together(known) if known else None

    @property
    def gauges(self) -> list[Gauge]:
        """What the children last said of themselves."""
        return [one.gauge for one in self._supervisors if one.gauge is not None]

    def start(self) -> Limits:
        """Start all replicas at once.

        Returns: what they can do together.

        Raises:
            ConfigError: settings, model or library are not as they should be.
            EngineDied: one cannot be started.
        """
        if len(self._supervisors) == 1:
            return self._supervisors[0].start()
        with ThreadPoolExecutor(len(self._supervisors)) as pool:
            starts = [pool.submit(one.start) for one in self._supervisors]
            failures = [e for e in (start.exception() for start in starts) if e is not None]
        if failures:
            self.close()
            raise failures[0]
        return together([start.result() for start in starts])

    def submit(self, prompts: Prompts) -> None:
        """Give rows to the replicas, each piece to the one with the least before it."""
        if len(self._supervisors) == 1:
            self._supervisors[0].submit(prompts)
            return
        for planned, piece in self._pieces(prompts):
            expected = self._guess.expected(piece)
            with self._changing:
                chosen = self._chosen(planned, expected)
                self._loads[chosen].add(piece, expected)
                # Under the lock: a replica that is given up must not get rows after its own were taken out.
                self._supervisors[chosen].submit(piece)

    def _pieces(self, prompts: Prompts) -> Iterator[tuple[int | None, Prompts]]:
        """Rows that are best asked of one replica, and of which; None: of any."""
        if not prompts.replica_of:
            for piece in cut_evenly(prompts, len(self._living)):
                yield None, piece
            return
        of = np.array(prompts.replica_of)
        for i in range(len(self._supervisors)):
            rows = np.flatnonzero(of == i).tolist()
            if rows:
                yield i, prompts.take(rows)

    def _chosen(self, planned: int | None, expected: list[tuple[int, float]]) -> int:
        """The replica that is planned, else the one with the least before it; under the lock."""
        if planned in self._living and self._is_free(planned, len(expected)):
            return planned
        costs = {i: self._loads[i].cost(self._seats(i)) for i in self._living}
        least = min(costs, key=costs.__getitem__)
        if planned not in costs:
            return least
        whole = costs[planned] + sum(map(work_of, expected))
        return planned if costs[planned] - costs[least] <= MOST_AHEAD * whole else least

    def _is_free(self, i: int, rows: int) -> bool:
        """Whether so many rows would wait for nobody: then the plan is right, whatever its steps take."""
        return len(self._loads[i]) + rows <= self._seats(i)

    def _seats(self, i: int) -> int:
        limits = self._supervisors[i].limits
        return max(1, limits.seats) if limits is not None else 1

    def finish(self) -> None:
        """Say that no more rows will be submitted: `outcomes` ends when all are answered."""
        if len(self._supervisors) == 1:
            self._supervisors[0].finish()
            return
        with self._changing:
            self._is_finished = True
            self._say_end()

    def _say_end(self) -> None:
        """Only once all is answered: until then a replica may have to take the rows of another; under the lock."""
        if self._is_finished and not any(map(len, self._loads)):
            for i in self._living:
                self._supervisors[i].finish()

    def outcomes(self) -> Iterator[Outcomes]:
        """Outcomes as they come, in any order, until all is answered.

        Raises:
            EngineDied: no replica is left.
        """
        if len(self._supervisors) == 1:
            yield from self._supervisors[0].outcomes()
            return
        arrived: queue.SimpleQueue[tuple[int, Outcomes | BaseException | None]] = (
            queue.SimpleQueue()
        )
        for i in range(len(self._supervisors)):
            threading.Thread(
                target=self._receive, args=(i, arrived), name=f"replica-{i}", daemon=True
            ).start()
        num_open = len(self._supervisors)
        while num_open:
            i, found = arrived.get()
            if isinstance(found, Outcomes):
                with self._changing:
                    self._loads[i].settle(found)
                    self._guess.learn(found)
                yield found
                with self._changing:
                    self._say_end()
                continue
            num_open -= 1
            if found is not None:
                self._give_up(i, found)

    def drain(self) -> None:
        """Have the replicas drop rows that they did not begin: `outcomes` ends once the others are answered."""
        with self._changing:
            for i in self._living:
                self._supervisors[i].drain()

    def hold(self, at_once: int) -> None:
        """Let the engines together have no more than so many rows at a time, at least one each; 0: as many as they take."""
        with self._changing:
            share, more = divmod(at_once, len(self._living))
            for place, i in enumerate(self._living):
                own = max(1, share + (place < more)) if at_once else 0
                self._supervisors[i].hold(own)

    def close(self) -> None:
        """End all engines and all they started; what is in flight is forgotten."""
        self._closing.set()
        with ThreadPoolExecutor(len(self._supervisors)) as pool:
            list(pool.map(Supervisor.close, self._supervisors))

    def _receive(
        self, i: int, arrived: queue.SimpleQueue[tuple[int, Outcomes | BaseException | None]]
    ) -> None:
        try:
            for outcomes in self._supervisors[i].outcomes():
                arrived.put((i, outcomes))
        # Raised again, or its rows given to others, by the thread that iterates.
        except BaseException as error:
            arrived.put((i, error))
        else:
            arrived.put((i, None))

    def _give_up(self, i: int, error: BaseException) -> None:
        """Go on without a replica; its rows go to the others."""
        with self._changing:
            if self._closing.is_set():
                return
            self._living.remove(i)
            if not isinstance(error, errors.EngineDied) or not self._living:
                raise error
            rows = self._supervisors[i].abandon()
            self._loads[i] = _Load()
            for prompts in rows:
                expected = self._guess.expected(prompts)
                chosen = self._chosen(None, expected)
                self._loads[chosen].add(prompts, expected)
                self._supervisors[chosen].submit(prompts)
            self._say_end()


def work_of(expected: tuple[int, float]) -> float:
    """Tokens of a prompt and of its answer, in tokens of a prompt."""
    prompt, answer = expected
    return prompt + DECODE_WEIGHT * answer


class _Guess:
    """How long answers are, learnt as they come."""

    def __init__(self) -> None:
        self._rows = self._tokens = 0

    def learn(self, outcomes: Outcomes) -> None:
        self._rows += len(outcomes)
        self._tokens += int(outcomes.tokens[2].sum())

    def expected(self, prompts: Prompts) -> list[tuple[int, float]]:
        """Tokens of each row's prompt and of its answer."""
        mean = self._tokens / self._rows if self._rows else FIRST_GUESS_TOKENS
        lengths = np.diff(prompts.stops, prepend=0).tolist()
        exact = [sampling.ignore_eos for sampling in prompts.samplings]
        rows = []
        for length, most, which in zip(
            lengths, prompts.max_tokens, prompts.sampling_of, strict=True
        ):
            answer = most if most and (exact[which] or most < mean) else mean
            rows.append((length, float(answer)))
        return rows


def together(limits: Sequence[Limits]) -> Limits:
    """What replicas can do as one."""
    pools = [one.kv_tokens for one in limits]
    return msgspec.structs.replace(
        limits[0],
        seats=sum(one.seats for one in limits),
        replicas=len(limits),
        kv_tokens=sum(pools) if all(pools) else 0,
        max_model_tokens=min(one.max_model_tokens for one in limits),
    )


def cut_evenly(prompts: Prompts, number: int) -> Iterator[Prompts]:
    """About `number` equal pieces of neighbours, cut where neighbours share least: each replica pays for a prefix anew."""
    rows = len(prompts)
    size = max(1, -(-rows // max(number, 1)))
    slack = size // 4
    starts = prompts.starts()
    begin = 0
    while rows - begin > size + slack:
        middle = begin + size
        at = min(
            range(middle - slack, middle + slack + 1),
            key=lambda i: (_shared(prompts, starts, i), abs(i - middle)),
        )
        yield prompts.slice(begin, at)
        begin = at
    if begin < rows:
        yield prompts.slice(begin, rows)


def _shared(prompts: Prompts, starts: npt.NDArray[np.int64], i: int) -> int:
    """Tokens that row i begins with like the one before it."""
    left = prompts.ids[starts[i - 1] : prompts.stops[i - 1]]
    right = prompts.ids[starts[i] : prompts.stops[i]]
    shortest = min(len(left), len(right))
    differs = np.flatnonzero(left[:shortest] != right[:shortest])
    return int(differs[0]) if len(differs) else shortest


def _numbered(path: Path, i: int) -> Path:
    """A file of its own for each replica; the first has the name itself."""
    return path.with_name(f"{path.stem}-{i}{path.suffix}") if i else path
