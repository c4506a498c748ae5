"""Prompts -> answers that are numbers, by vLLM: vectors, classes, scores of pairs, weights of labels.

A row is several requests there: one for each of its texts or pairs; or, where labels are weighed, one for each distinct
beginning of a label, which tells the log-probabilities of the tokens that may follow. They stand one behind the other,
so that the prompt is computed once and found in the prefix cache by the rest.

Promises: vLLM's front end is passed by: one request is made and checked of each sort, and copied; a row leaves when
its last request ends.
Knows nothing of: what the numbers mean.
Memory: the rows given.
Source: `vllm/v1/engine/input_processor.py`, `sampling_params.py` (`logprob_token_ids`) and `pooling_params.py` of 0.32.0.
`prompt_logprobs` would do in one request a label, but computes the prompt anew for each of them: it is no reader of the
prefix cache, and takes logits of every position.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any, Protocol

import msgspec

from rowmill import errors
from rowmill.engines.prompt import check_prompt
from rowmill.engines.texts import failed_text
from rowmill.engines.vectors import answered_with, parts_of
from rowmill.engines.vllm_loop import Loop
from rowmill.engines.vllm_port import Counters
from rowmill.rows import Ids, Limits, Outcome, Pair, Piece, Prompts
from rowmill.tokens.labels import Labels, Path

MOST_TOKENS_ASKED = 128
"""Tokens whose log-probabilities one request may ask for (`MAX_LOGPROB_TOKEN_IDS`)."""
_NO_ANSWER = ("error", "abort")
_TRIES = 2
_GRACE_S = 1.0


class NumberRow(msgspec.Struct, gc=False):
    """A row while vLLM has requests of it."""

    key: int
    tokens: int
    began: float
    pieces: Sequence[Piece]
    pairs: Sequence[Pair]
    found: list[Any]
    """What each request said; None while it is asked."""
    missing: int
    cached_tokens: int = 0
    attempts: int = 1
    error: errors.RowError | None = None


class Request(msgspec.Struct, gc=False):
    """One thing asked of vLLM for a row."""

    row: NumberRow
    at: int
    """Which of the row's."""
    ids: list[int]
    second: int = -1
    """Its first token of the other kind, in a pair that tells them apart; else -1."""
    tries: int = 1


class Sort(Protocol):
    """What is asked for a row, and how it is read."""

    least: int
    """Tokens that must fit into the context behind a text."""

    def templates(self) -> list[Any]:
        """Parameters of vLLM's of each sort of request."""
        ...

    def requests(self, row: NumberRow, ids: Ids) -> Iterator[Request]:
        """What is asked for a row, its prompt first."""
        ...

    def template_of(self, request: Request) -> int:
        """Which of the templates it is of."""
        ...

    def read(self, request: Request, output: Any) -> Any:
        """What vLLM said to it."""
        ...

    def answer(self, row: NumberRow) -> dict[str, Any]:
        """Fields of the row's outcome, all of it said."""
        ...


class NumbersPort:
    """An open engine of vLLM, asked for numbers."""

    def __init__(self, engine: Any, sort: Sort) -> None:
        """Adopt an engine.

        Raises:
            ConfigError: it does not take what is asked.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        self.counters = Counters()
        self.dead = EngineDeadError
        self._core = engine.engine_core
        self._sort = sort
        self._asked: dict[str, Request] = {}
        self._number = 0
        try:
            self._templates = [
                engine.input_processor.process_inputs(
                    "template",
                    {"type": "token", "prompt_token_ids": [0]},
                    parameters,
                    engine.get_supported_tasks(),
                )
                for parameters in sort.templates()
            ]
        except (ValueError, TypeError, NotImplementedError) as error:
            reason = f"vLLM does not do this with `engine.model`: {' '.join(str(error).split())[:400]}"
            raise errors.ConfigError(reason=reason) from error

    @property
    def is_idle(self) -> bool:
        """Whether vLLM has no request."""
        return not self._asked

    def add(self, request: Request) -> None:
        """Give a request to vLLM."""
        self._number += 1
        made = copy.copy(self._templates[self._sort.template_of(request)])
        made.request_id = made.external_req_id = f"n{self._number}"
        made.prompt_token_ids = request.ids
        if request.second >= 0:
            made.pooling_params = copy.copy(made.pooling_params)
            made.pooling_params.extra_kwargs = {"compressed_token_type_ids": request.second}
        self._core.add_request(made)
        self._asked[made.request_id] = request

    def step(self) -> list[Request]:
        """Wait for the next step; the requests that ended with it, their answers in their rows."""
        outputs = self._core.get_output()
        ended = []
        for output in outputs.outputs:
            if output.finish_reason is None:
                continue
            request = self._asked.pop(output.request_id)
            if str(output.finish_reason) not in _NO_ANSWER:
                request.row.found[request.at] = self._sort.read(request, output)
                if output.prefill_stats is not None and request.at == 0:
                    request.row.cached_tokens += output.prefill_stats.num_cached_tokens
            ended.append(request)
        self.counters.note(outputs.scheduler_stats, ended=len(ended))
        return ended

    def close(self) -> None:
        """End the engine's processes."""
        self._core.shutdown(timeout=_GRACE_S)


class VllmNumbers(Loop[Request]):
    """An open vLLM whose answers are numbers."""

    _port: NumbersPort

    def __init__(
        self,
        port: NumbersPort,
        sort: Sort,
        *,
        limits: Limits,
        vocabulary: int,
        sockets: FilePath | None = None,
    ) -> None:
        super().__init__(port, limits, sockets=sockets)
        self._sort = sort
        self._vocabulary = vocabulary

    def _add_all(self, prompts: Prompts) -> None:
        began = time.monotonic()
        limit = self.limits.max_model_tokens - self._sort.least
        refused: list[Request | Outcome] = []
        for key, ids in zip(prompts.keys, prompts.row_ids(), strict=True):
            pieces, pairs = prompts.pieces.get(key, ()), prompts.pairs.get(key, ())
            try:
                for part in parts_of(ids, pieces, pairs):
                    check_prompt(part, limit=limit, vocabulary=self._vocabulary, answers=False)
            except errors.RowError as error:
                refused.append(failed_text(key, len(ids), error))
                continue
            row = NumberRow(key, len(ids), began, pieces, pairs, [], 0)
            requests = list(self._sort.requests(row, ids))
            row.missing, row.found = len(requests), [None] * len(requests)
            for request in requests:
                self._port.add(request)
        if refused:
            self._out.put(refused)

    def _put(self, ended: list[Request]) -> None:
        """Let rows go whose last request ended; one that vLLM gave up is asked once more."""
        going: list[Request | Outcome] = []
        for request in ended:
            row = request.row
            if row.found[request.at] is None:
                if request.tries < _TRIES:
                    request.tries = row.attempts = request.tries + 1
                    self._port.add(request)
                    continue
                reason = f"vLLM ended the row without an answer, {_TRIES} times; see its log"
                row.error = errors.GaveUp(reason=reason)
            row.missing -= 1
            if not row.missing:
                going.append(request)
        if going:
            self._out.put(going)

    def _outcomes(self, some: list[Request | Outcome]) -> list[Outcome]:
        now = time.monotonic()
        return [
            one if isinstance(one, Outcome) else self._outcome(one.row, now) for one in some
        ]

    def _outcome(self, row: NumberRow, now: float) -> Outcome:
        error = row.error
        return Outcome(
            key=row.key,
            status="error" if error else "ok",
            prompt_tokens=row.tokens,
            cached_tokens=row.cached_tokens,
            attempts=row.attempts,
            seconds=round(now - row.began, 6),
            error_kind=error.kind if error else None,
            error=str(error) if error else None,
            **({} if error else self._sort.answer(row)),
        )


class Pooled:
    """Vectors of texts, or the numbers of a head."""

    least = 0

    def __init__(self, task: str, *, activates: bool = False, has_types: bool = False) -> None:
        """All that is pooled.

        Args:
            task: vLLM's `embed` or `classify`.
            activates: Vectors are brought to length 1.
            has_types: The model is told which tokens are the second text's; others die of it.
        """
        self._task, self._activates, self._has_types = task, activates, has_types

    def templates(self) -> list[Any]:
        """See `Sort`."""
        from vllm import PoolingParams

        return [PoolingParams(task=self._task, use_activation=self._activates)]

    def requests(self, row: NumberRow, ids: Ids) -> Iterator[Request]:
        """See `Sort`."""
        for at, part in enumerate(parts_of(ids, row.pieces, row.pairs)):
            second = row.pairs[at].second if row.pairs and self._has_types else len(part)
            yield Request(row, at, part.tolist(), second if second < len(part) else -1)

    def template_of(self, request: Request) -> int:
        """See `Sort`."""
        del request
        return 0

    def read(self, request: Request, output: Any) -> bytes:
        """See `Sort`."""
        del request
        return output.pooling_output.float().numpy().astype("<f4").tobytes()  # type: ignore[no-any-return]

    def answer(self, row: NumberRow) -> dict[str, Any]:
        """See `Sort`."""
        return answered_with(row.found, row.pieces, row.pairs)


class Weighed:
    """Labels, each by its log-probability as the whole answer."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self.least = labels.longest
        self._nodes: list[tuple[Path, list[int]]] = [
            (path, next_[start : start + MOST_TOKENS_ASKED])
            for path, next_ in labels.nodes().items()
            for start in range(0, len(next_), MOST_TOKENS_ASKED)
        ]

    def templates(self) -> list[Any]:
        """See `Sort`."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return [
            SamplingParams(
                temperature=0,
                max_tokens=1,
                detokenize=False,
                logprob_token_ids=next_,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for _, next_ in self._nodes
        ]

    def requests(self, row: NumberRow, ids: Ids) -> Iterator[Request]:
        """See `Sort`."""
        prompt = ids.tolist()
        for at, (path, _) in enumerate(self._nodes):
            yield Request(row, at, [*prompt, *path])

    def template_of(self, request: Request) -> int:
        """See `Sort`."""
        return request.at

    def read(self, request: Request, output: Any) -> dict[int, float]:
        """See `Sort`; the first column is the token that was drawn, and padding stands behind the rest."""
        del request
        found = output.new_logprobs
        tokens, values = found.logprob_token_ids[0], found.logprobs[0]
        # Padding is token 0 at minus infinity: whichever was asked for comes before it.
        pairs = zip(tokens.tolist()[::-1], values.tolist()[::-1], strict=True)
        return dict(pairs)

    def answer(self, row: NumberRow) -> dict[str, Any]:
        """See `Sort`."""
        told: dict[Path, dict[int, float]] = {}
        for (path, next_), found in zip(self._nodes, row.found, strict=True):
            told.setdefault(path, {}).update({token: found[token] for token in next_})
        return {"embedding": self._labels.sums(told).astype("<f4").tobytes(), "chunks": []}
