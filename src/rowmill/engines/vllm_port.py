"""Rows <-> vLLM's engine: the only file that touches its objects.

Promises: a row that vLLM refuses fails alone, before its engine sees it; rows come back once, in any order.
Knows nothing of: feeds, texts, outcomes.
Memory: the rows that vLLM has. Not safe for two threads.
Source: `vllm/v1/engine/llm_engine.py`, `input_processor.py`, `output_processor.py` of 0.25.1, 0.32.0 and 0.33.0:
`add_request` and `step` are what this does in two halves. A plain row passes by both processors: one request is made
and checked for each sampling, and copied for each row; its token ids are gathered here.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from rowmill import errors
from rowmill.engines.vllm_ask import (
    Ended,
    Row,
    Sample,
    needs_text,
    parameters,
    refused,
    shown,
)
from rowmill.rows import Sampling

_MAX_KEPT = 4096
_GRACE_S = 1.0
"""Before vLLM's processes are killed: nothing of value is in them."""
_NO_SAMPLE = ("error", "abort")
_NO_STEPS = (0.0, 0.0, 0.0, 0.0)

Died = Callable[[BaseException], errors.EngineDied]


class Means(NamedTuple):
    """Over steps."""

    running: float
    waiting_rows: float
    kv_use: float
    """Share of the KV cache that is taken."""


class Counters(msgspec.Struct):
    """What the scheduler says of itself."""

    running: int = 0
    """Rows of the last step, those that ended with it too."""
    waiting_rows: int = 0
    kv_use: float = 0.0
    preemptions: int = 0
    """Rows that had to give their KV cache back and were computed again, so far."""
    queried: int = 0
    hits: int = 0
    _sums: tuple[float, ...] = _NO_STEPS

    def means(self) -> Means:
        """Over the steps since the last call; of the last step, where there was none."""
        (steps, *sums), self._sums = self._sums, _NO_STEPS
        if not steps:
            return Means(self.running, self.waiting_rows, self.kv_use)
        return Means(*(value / steps for value in sums))

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens found in the prefix cache, so far."""
        return self.hits / self.queried if self.queried else 0.0

    def note(self, stats: Any, *, ended: int) -> None:
        """Take a step's `SchedulerStats` in; None where it has none.

        Args:
            stats: made after the step, when rows that ended with it have left their seats.
            ended: so many.
        """
        if stats is None:
            return
        self.running = stats.num_running_reqs + ended
        self.waiting_rows = stats.num_waiting_reqs
        self.kv_use = stats.kv_cache_usage
        steps, *sums = self._sums
        now = (self.running, self.waiting_rows, self.kv_use)
        self._sums = (steps + 1, *map(operator.add, sums, now))
        prefixes = stats.prefix_cache_stats
        if prefixes is not None:
            self.preemptions += prefixes.preempted_requests
            self.queried += prefixes.queries
            self.hits += prefixes.hits


class _Held(msgspec.Struct):
    """A plain row that vLLM has, and what it answered so far."""

    row: Row
    ids: list[int]
    cached_tokens: int = 0


class Port:
    """An open engine of vLLM."""

    def __init__(self, engine: Any, *, loras: Mapping[str, Any], is_direct: bool) -> None:
        """Adopt an engine; `loras`: name -> LoRARequest."""
        import vllm.sampling_params as theirs
        from vllm.v1.engine.exceptions import EngineDeadError

        self.counters = Counters()
        self.dead = EngineDeadError
        self._refusals = refusals()
        self._theirs = theirs
        self._engine = engine
        self._core = engine.engine_core
        self._loras = loras
        self._is_direct = is_direct
        self._defaults = engine.model_config.get_diff_sampling_param()
        self._plain: dict[str, _Held] = {}
        self._others: dict[str, Row] = {}
        self._templates: dict[Sampling, Any] = {}
        self._number = 0

    @property
    def is_idle(self) -> bool:
        """Whether vLLM has no row."""
        return not self._plain and not self._others

    def add(self, row: Row) -> None:
        """Give a row to vLLM.

        Raises:
            RowError: vLLM does not take it.
        """
        self._number += 1
        is_plain = row.sampling.n == 1 and not needs_text(row.sampling) and not row.media
        if self._is_direct and is_plain:
            self._add_plain(row)
        else:
            self._add_other(row)

    def step(self) -> list[Ended]:
        """Wait for the next step of the engine; the rows that ended with it."""
        if not self._is_direct:
            return self._ended_others(self._engine.step())
        outputs = self._core.get_output()
        ended: list[Ended] = []
        others = []
        held_of = self._plain.get
        for output in outputs.outputs:
            held = held_of(output.request_id)
            if held is None:
                others.append(output)
                continue
            held.ids += output.new_token_ids
            if output.prefill_stats is not None:
                held.cached_tokens = output.prefill_stats.num_cached_tokens
            if output.finish_reason is not None:
                del self._plain[output.request_id]
                ended.append(_ended(held, str(output.finish_reason)))
        finished = len(ended) + sum(one.finish_reason is not None for one in others)
        self.counters.note(outputs.scheduler_stats, ended=finished)
        if others:
            processed = self._engine.output_processor.process_outputs(others)
            self._core.abort_requests(processed.reqs_to_abort)
            ended += self._ended_others(processed.request_outputs)
        return ended

    def close(self) -> None:
        """End the engine's processes."""
        self._core.shutdown(timeout=_GRACE_S)

    def _add_plain(self, row: Row) -> None:
        template = self._templates.get(row.sampling)
        if template is None:
            template = self._template(row)
        request = copy.copy(template)
        request.request_id = request.external_req_id = f"p{self._number}"
        request.prompt_token_ids = row.ids.tolist()
        theirs = template.sampling_params
        if theirs.max_tokens != row.room or row.sampling.seed_per_row:
            theirs = request.sampling_params = copy.copy(theirs)
            theirs.max_tokens = row.room
            if row.sampling.seed_per_row:
                theirs.seed = self._asked(row)["seed"]
        self._core.add_request(request)
        self._plain[request.request_id] = _Held(row, [])

    def _template(self, row: Row) -> Any:
        """A request with the row's sampling, checked by vLLM, for others to be copied from."""
        lora = self._lora(row)
        try:
            request = self._engine.input_processor.process_inputs(
                "template",
                _prompt(row),
                self._parameters(row),
                self._engine.get_supported_tasks(),
                lora_request=lora,
            )
        except self._refusals as error:
            raise refused(error) from error
        if len(self._templates) >= _MAX_KEPT:
            self._templates.clear()
        self._templates[row.sampling] = request
        return request

    def _add_other(self, row: Row) -> None:
        name, lora = f"o{self._number}", self._lora(row)
        try:
            prompt = self._rendered(row) if row.media else _prompt(row)
            self._engine.add_request(name, prompt, self._parameters(row), lora_request=lora)
        except self._refusals as error:
            raise refused(error) from error
        self._others[name] = row

    def _ended_others(self, outputs: Any) -> list[Ended]:
        ended = []
        for output in outputs:
            # Only of finals: every request asks for these alone.
            row = self._others.pop(output.request_id, None)
            if row is not None:
                samples = [_sample(found, row.sampling) for found in output.outputs]
                tokens = len(output.prompt_token_ids or ())
                ended.append(Ended(row, samples, output.num_cached_tokens or 0, tokens))
        return ended

    def _rendered(self, row: Row) -> Any:
        """The prompt of a row with images or audio: vLLM makes its tensors of them here, beside the engine's process."""
        prompt = {"prompt_token_ids": row.ids.tolist(), **shown(row)}
        render = getattr(self._engine.renderer, "render_cmpl", None)
        # Where vLLM has no such step, it takes prompts as they are.
        return prompt if render is None else render([prompt])[0]

    def _asked(self, row: Row) -> dict[str, Any]:
        return parameters(row.sampling, key=row.key, room=row.room, defaults=self._defaults)

    def _parameters(self, row: Row) -> Any:
        asked = self._asked(row)
        held = asked.pop("structured_outputs", None)
        if held:
            asked["structured_outputs"] = self._theirs.StructuredOutputsParams(**held)
        kind = self._theirs.RequestOutputKind.FINAL_ONLY
        return self._theirs.SamplingParams(output_kind=kind, **asked)

    def _lora(self, row: Row) -> Any:
        name = row.sampling.lora
        if not name:
            return None
        if name not in self._loras:
            known = ", ".join(f"`{key}`" for key in self._loras) or "none"
            reason = f"`lora` names an adapter that is not among `engine.loras`: {known}"
            raise errors.InvalidRow(reason=reason)
        return self._loras[name]


def refusals() -> tuple[type[BaseException], ...]:
    """What vLLM raises where a request is wrong, while it is still in our hands.

    0.25 raises ValueError and subclasses of it; since then there is a branch of errors that clients cause.
    Grammar compilers add RuntimeError, and ImportError where the one that a schema needs is not installed.
    """
    import vllm.exceptions as theirs

    known = (ValueError, TypeError, NotImplementedError, RuntimeError, ImportError)
    named = ("VLLMClientError", "VLLMNotFoundError", "VLLMValidationError")
    return (*known, *(getattr(theirs, name) for name in named if hasattr(theirs, name)))


def has_failed(ended: Ended) -> bool:
    """Whether vLLM gave a row up without an answer."""
    return any(sample.finish_reason in _NO_SAMPLE for sample in ended.samples)


def _prompt(row: Row) -> dict[str, Any]:
    return {"type": "token", "prompt_token_ids": row.ids.tolist()}


def _ended(held: _Held, reason: str) -> Ended:
    return Ended(held.row, [Sample(held.ids, reason)], held.cached_tokens)


def _sample(found: Any, sampling: Sampling) -> Sample:
    return Sample(
        ids=list(found.token_ids),
        finish_reason=found.finish_reason or "",
        text=found.text if needs_text(sampling) else None,
        logprobs=found.logprobs,
    )
