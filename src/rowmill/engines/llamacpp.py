"""Prompts -> Outcomes, by llama.cpp in this process: GGUF models, on a CPU too.

Promises: rows enter as token ids and batch continuously; the KV cache is never asked for more tokens than it has,
as one overflow there fails every row in it.
Knows nothing of: what is asked of the library for a row, see llamacpp_ask.py.
Memory: the weights, and `n_ctx` tokens of KV cache shared by all seats. Threads: a blocking call a seat.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.llamacpp_ask import Sample, read_sample, request
from rowmill.engines.llamacpp_embed import LlamaVectors
from rowmill.engines.llamacpp_labels import answered, weighed
from rowmill.engines.llamacpp_seats import Room, SeatedRow
from rowmill.engines.options import Options, mistakes, parse
from rowmill.engines.prompt import check_prompt, room_for
from rowmill.engines.protocol import Feed
from rowmill.rows import Limits, Outcome
from rowmill.tokens import open_tokenizer
from rowmill.tokens.gguf_file import read_metadata
from rowmill.tokens.labels import Labels, encode_labels

_SEATS = 8
"""Rows/s at 1, 4, 8, 16 seats were 6.5, 7.2, 7.5, 7.7 on two cores."""
_CONTEXT = 8192
_SEAT_TOKENS = 1024
_TRIES = 3
_EXPECTED_TOKENS = 128
"""Tokens an answer is given room for at first; then twice those of the longest one so far."""
_ERRORS_ONLY = 1
_ANY_VOCABULARY = 2**32
_SAMPLING = (
    "top_k",
    "min_p",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logprobs",
    "choices",
    "schema",
    "ignore_eos",
    "return_token_ids",
)

KINDS = frozenset(("chat", "generate", "embed", "classify"))
"""What it can be asked for."""
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}
"""By llama.cpp's numbers, as a file's metadata has them."""
_EMBED_SEATS = 32

EFFORT = frozenset(("threads", "n_ctx", "n_batch", "n_ubatch", "n_gpu_layers"))
"""Settings that change no answer: a run may be resumed with others."""


class LlamaOptions(Options):
    """Settings of engine `llamacpp`."""

    threads: int | None = Field(default=None, gt=0)
    """Processor threads. None: the cores this process may use."""
    n_ctx: int | None = Field(default=None, gt=0)
    """Tokens the KV cache holds, shared by all seats. None: 1,024 a seat, but `max_model_len` at least."""
    n_batch: int | None = Field(default=None, gt=0)
    """Most tokens of a step. None: llama.cpp's default."""
    n_ubatch: int | None = Field(default=None, gt=0)
    """Most tokens computed at once. None: llama.cpp's default."""
    n_gpu_layers: int | None = Field(default=None, ge=0)
    """Layers that lie on a GPU. None: llama.cpp's choice."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each."""
    found = mistakes(LlamaOptions, engine)
    path = Path(engine.model).expanduser()
    if not path.is_file():
        found.append(f"`engine.model`: there is no file `{path}`; give the path of a GGUF file")
    n_ctx = engine.options.get("n_ctx")
    if not found and n_ctx and n_ctx < (engine.max_model_len or 0):
        found.append(f"`engine.n_ctx` = {n_ctx} is less than `engine.max_model_len`; raise it")
    if not found and engine.embed is not None and not _pooling(engine):
        found.append(
            f"`embed.pooling`: `{path.name}` does not say how the model pools; set `mean`, `cls` or `last`"
        )
    if engine.classify is not None and not engine.classify.names:
        found.append(
            "`classify.labels` is missing: engine `llamacpp` does not read the classes of a model with a head;"
            " give labels, or set `engine.name` to `onnx`, `transformers` or `vllm`"
        )
    return found


def declare(engine: EngineConfig) -> Limits:
    """What the file's metadata and the settings say, without loading the model.

    Raises:
        BadJob: Mistakes in its settings.
        ConfigError: The model is no GGUF file.
    """
    found = check_options(engine)
    if found:
        raise errors.BadJob(where="engine `llamacpp`", mistakes=found)
    options = parse(LlamaOptions, engine)
    path = Path(engine.model).expanduser()
    metadata = read_metadata(path)
    architecture = bytes(metadata.get("general.architecture", b"")).decode()
    trained = int(metadata.get(f"{architecture}.context_length", 0)) or _CONTEXT
    longest = engine.max_model_len or options.n_ctx or min(trained, _CONTEXT)
    embeds = engine.embed is not None
    seats = engine.seats or (_EMBED_SEATS if embeds else _SEATS)
    return Limits(
        takes="ids",
        max_model_tokens=min(longest, trained),
        seats=seats,
        # Texts that are embedded leave it at once: two calls of the longest fit.
        kv_tokens=options.n_ctx
        or (max(2 * longest, _CONTEXT) if embeds else max(longest, seats * _SEAT_TOKENS)),
        sampling=_SAMPLING if engine.is_asked_for_texts else (),
        dimensions=int(metadata.get(f"{architecture}.embedding_length", 0)) if embeds else 0,
        about=f"llama.cpp: {path.name}",
    )


def open(engine: EngineConfig) -> Llama | LlamaVectors:
    """Load the model.

    Raises:
        BadJob: Mistakes in its settings.
        MissingExtra: xllamacpp is not installed.
        EngineDied: llama.cpp cannot load the model.
    """
    limits = declare(engine)
    try:
        import xllamacpp
    except ImportError as error:
        raise errors.MissingExtra(what="`xllamacpp`", extra="llamacpp") from error
    labels = _labels(engine)
    settings = _settings(xllamacpp.CommonParams(), engine, limits)
    if engine.embed is not None:
        settings.embedding = True
        kinds, name = xllamacpp.llama_pooling_type, _pooling(engine).upper()
        settings.pooling_type = getattr(kinds, f"LLAMA_POOLING_TYPE_{name}")
        # A text is pooled in one piece.
        settings.n_ubatch = max(settings.n_ubatch, limits.max_model_tokens)
        settings.n_batch = max(settings.n_batch, settings.n_ubatch)
    if labels is not None:
        _be_exact(xllamacpp, settings)
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError as error:
        reason = f"llama.cpp cannot load `{engine.model}`: {error}; see the engine's log"
        raise errors.EngineDied(reason=reason) from error
    tokens = read_metadata(Path(engine.model).expanduser()).get("tokenizer.ggml.tokens", ())
    vocabulary = len(tokens) or _ANY_VOCABULARY
    if engine.embed is not None:
        return LlamaVectors(server, limits, vocabulary=vocabulary)
    if labels is not None:
        return LlamaLabels(server, limits, labels, vocabulary=vocabulary)
    return Llama(server, limits, vocabulary=vocabulary)


class Llama:
    """A loaded model."""

    def __init__(
        self,
        server: Any,
        limits: Limits,
        *,
        vocabulary: int = _ANY_VOCABULARY,
        expected_tokens: int = _EXPECTED_TOKENS,
    ) -> None:
        self.limits = limits
        self._server = server
        self._vocabulary = vocabulary
        self._expected_tokens = expected_tokens
        self._room = Room(limits.kv_tokens)
        self._rows: queue.SimpleQueue[SeatedRow | None] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[Outcome | BaseException | None] = queue.SimpleQueue()

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        threading.Thread(target=self._take, args=(feed,), name="take", daemon=True).start()
        for _ in range(self.limits.seats):
            threading.Thread(target=self._sit, name="seat", daemon=True).start()
        num_sitting = self.limits.seats
        while num_sitting:
            item = self._out.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                num_sitting -= 1
            else:
                yield [item]

    def close(self) -> None:
        """Free the model."""
        self._server = None

    def _take(self, feed: Feed) -> None:
        while (prompts := feed.take(wait=True)) is not None:
            for i, ids in enumerate(prompts.row_ids()):
                self._rows.put(SeatedRow(prompts, i, ids))
        for _ in range(self.limits.seats):
            self._rows.put(None)

    def _sit(self) -> None:
        """One seat: row after row."""
        try:
            while (row := self._rows.get()) is not None:
                self._out.put(self._answer(row))
        # Raised again by `run`: a seat must not end without a word.
        except BaseException as error:
            self._out.put(error)
        else:
            self._out.put(None)

    def _answer(self, row: SeatedRow) -> Outcome:
        began, limit = time.monotonic(), self.limits.max_model_tokens
        asked = row.max_tokens
        try:
            # llama.cpp never answers a request with a token that its vocabulary has not.
            check_prompt(row.ids, asked=asked, limit=limit, vocabulary=self._vocabulary)
        except errors.RowError as error:
            return row.failed(error, 1, began)
        row.room = room_for(
            row.sampling, max_tokens=asked, prompt_tokens=len(row.ids), limit=limit
        )
        for attempt in range(1, _TRIES + 1):
            try:
                samples = [self._sample(row, index, attempt) for index in range(row.sampling.n)]
            except errors.RowError as error:
                return row.failed(error, attempt, began)
            except errors.Disconnected as error:
                failure = error
            else:
                return row.answered(samples, attempt, began)
        reason = f"{failure}; given up after {_TRIES} attempts"
        return row.failed(errors.GaveUp(reason=reason), _TRIES, began)

    def _sample(self, row: SeatedRow, index: int, attempt: int) -> Sample:
        """One call of llama.cpp.

        Raises:
            RowError: The row is wrong.
            Disconnected: llama.cpp failed.
        """
        asked = request(row.ids, row.sampling, max_tokens=row.room, index=index)
        # To hold all of `max_tokens` for each would leave most seats empty. Where it turns out too little,
        # llama.cpp fails every row in the cache; after a failure a row has the cache for itself.
        tokens = len(row.ids) + min(row.room, self._expected_tokens)
        with self._room.taken(tokens if attempt == 1 else self.limits.kv_tokens):
            result = self._completed(asked)
        sample = read_sample(result, row.sampling, index)
        self._expected_tokens = max(self._expected_tokens, 2 * sample.output_tokens)
        return sample

    def _completed(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What llama.cpp says to a request.

        Raises:
            Refused: It does not take it.
            Disconnected: It failed.
        """
        try:
            result: dict[str, Any] = self._server.handle_completions(asked)
        except ValueError as error:
            reason = f"llama.cpp does not take this request: {type(error).__name__}"
            raise errors.Refused(reason=reason) from error
        except RuntimeError as error:
            reason = f"llama.cpp failed: {type(error).__name__}"
            raise errors.Disconnected(reason=reason) from error
        return result


class LlamaLabels(Llama):
    """A loaded model that weighs labels."""

    def __init__(self, server: Any, limits: Limits, labels: Labels, *, vocabulary: int) -> None:
        super().__init__(server, limits, vocabulary=vocabulary)
        self._labels = labels

    def _answer(self, row: SeatedRow) -> Outcome:
        began = time.monotonic()
        limit = self.limits.max_model_tokens - self._labels.longest
        tokens = len(row.ids) + self._labels.longest
        try:
            check_prompt(row.ids, limit=limit, vocabulary=self._vocabulary, answers=False)
            for attempt in range(1, _TRIES + 1):
                try:
                    with self._room.taken(tokens if attempt == 1 else self.limits.kv_tokens):
                        vocabulary = self._vocabulary
                        found = weighed(
                            row, self._labels, self._completed, vocabulary=vocabulary
                        )
                except errors.Disconnected as error:
                    failure = error
                else:
                    return answered(row, self._labels, found, attempt, began)
        except errors.RowError as error:
            return row.failed(error, 1, began)
        reason = f"{failure}; given up after {_TRIES} attempts"
        return row.failed(errors.GaveUp(reason=reason), _TRIES, began)


def _pooling(engine: EngineConfig) -> str:
    """How the model pools: as the job says, else the file; empty where neither does."""
    if engine.embed is None or engine.embed.pooling != "auto":
        return engine.embed.pooling if engine.embed else ""
    metadata = read_metadata(Path(engine.model).expanduser())
    architecture = bytes(metadata.get("general.architecture", b"")).decode()
    return _POOLINGS.get(int(metadata.get(f"{architecture}.pooling_type", 0)), "")


def _be_exact(library: Any, settings: Any) -> None:
    """Keys, values and attention in float32: as they are by default, a log-probability is up to 1e-2 off, so 2e-4."""
    settings.cache_type_k = settings.cache_type_v = library.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED


def _labels(engine: EngineConfig) -> Labels | None:
    """The labels of a job in the file's tokens; None where it has none."""
    if engine.classify is None:
        return None
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    return encode_labels(engine.classify, tokenizer)


def _settings(settings: Any, engine: EngineConfig, limits: Limits) -> Any:
    """llama.cpp's own settings."""
    options = parse(LlamaOptions, engine)
    threads = options.threads or len(os.sched_getaffinity(0))
    settings.model.path = str(Path(engine.model).expanduser())
    settings.n_ctx = limits.kv_tokens
    settings.n_parallel = limits.seats
    # Without it each seat gets n_ctx / n_parallel, and a long row has no seat although there is room.
    settings.kv_unified = True
    # The host keeps up to 8 GB of old prompts else.
    settings.cache_ram_mib = 0
    settings.cpuparams.n_threads = threads
    settings.cpuparams_batch.n_threads = threads
    # The library always opens a loopback port; 0 takes a free one.
    settings.port = 0
    settings.verbosity = _ERRORS_ONLY
    for name in ("n_batch", "n_ubatch", "n_gpu_layers"):
        if getattr(options, name) is not None:
            setattr(settings, name, getattr(options, name))
    return settings
