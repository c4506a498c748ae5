"""Token ids -> vectors, or numbers of a head, on a CPU, by onnxruntime: the embedded default of jobs without a language
model.

Promises: texts of like length go through the model together, each with as little filling as there are neighbours for;
a text that the model fails on fails alone.
Knows nothing of: cutting and judging vectors, see vectors.py; which texts go together, see padded.py.
Memory: the weights, once; activations of a step a thread, `step_tokens` of them each.
Threads: one a core, each with a step of its own; the weights are shared.
Source: measured, two cores, all-MiniLM-L6-v2 in fp32: two steps side by side on a thread each against one step on
two threads: see benchmarks/RESULTS.md. Steps of 512 tokens, whose activations stay in the cache, are 8 to 12% faster
than of 2,048, and 20% than of 4,096.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import Field

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.heads import head_mistakes, head_of
from rowmill.engines.onnx_folder import Folder, Pooling, find_file, read_folder
from rowmill.engines.options import Options, mistakes, parse
from rowmill.engines.padded import Text, Waiting
from rowmill.engines.protocol import Feed
from rowmill.kinds_config import EmbedConfig
from rowmill.rows import Ids, Limits, Outcome

_SEATS = 2048
_STEP_TOKENS = 512
_POOLED = ("sentence_embedding", "text_embeds", "embeddings", "dense_vecs")
"""Names that exports give to vectors of whole texts."""

KINDS = frozenset(("embed", "classify", "score", "rerank"))
"""What it can be asked for."""
EFFORT = frozenset(("threads", "step_tokens"))
"""Settings that change no answer: a run may be resumed with others."""

Floats = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]


class OnnxOptions(Options):
    """Settings of engine `onnx`."""

    file: str = ""
    """Weights in the model's folder, as `onnx/model_quantized.onnx`. Empty: `model.onnx`, else `onnx/model.onnx`."""
    threads: int | None = Field(default=None, gt=0)
    """Steps that are computed side by side, a thread each. None: the cores this process may use."""
    step_tokens: int = Field(default=_STEP_TOKENS, gt=0)
    """Most tokens of a step, filling counted in."""


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each."""
    found = mistakes(OnnxOptions, engine)
    if found:
        return found
    options = parse(OnnxOptions, engine)
    if not engine.model:
        return ["`engine.model` is missing: give a folder with model.onnx and tokenizer.json"]
    if find_file(engine.model, options.file) is None:
        wanted = options.file or "model.onnx"
        return [
            f"`engine.model`: there is no `{wanted}` in `{Path(engine.model).expanduser()}`"
        ]
    if engine.classify is not None and engine.classify.names:
        return [
            "`classify.labels` are weighed by a language model, and engine `onnx` has models with heads;"
            " take engine `transformers` or `vllm`, or leave `labels` out"
        ]
    return [] if engine.embed else list(head_mistakes(_folder(engine).config, engine))


def declare(engine: EngineConfig) -> Limits:
    """What the model's files and the settings say, without loading it.

    Raises:
        BadJob: Mistakes in its settings.
    """
    found = check_options(engine)
    if found:
        raise errors.BadJob(where="engine `onnx`", mistakes=found)
    return _limits(engine, _folder(engine))


def open(engine: EngineConfig) -> Onnx:
    """Load the model.

    Raises:
        BadJob: Mistakes in its settings.
        MissingExtra: onnxruntime is not installed.
        ConfigError: The model cannot be used for this.
        EngineDied: onnxruntime cannot load it.
    """
    limits = declare(engine)
    try:
        import onnxruntime
    except ImportError as error:
        raise errors.MissingExtra(what="`onnxruntime`", extra="onnx") from error
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    folder = _folder(engine)
    try:
        session = onnxruntime.InferenceSession(
            str(folder.file), settings, providers=["CPUExecutionProvider"]
        )
    # The library has a class for each of its own troubles, all of them below Exception itself.
    except Exception as error:
        reason = f"onnxruntime cannot load `{folder.file}`: {type(error).__name__}; see the engine's log"
        raise errors.EngineDied(reason=reason) from error
    kind = Model if engine.embed is not None else Head
    model = kind(session, folder, engine.embed or EmbedConfig())
    return Onnx(model, limits, parse(OnnxOptions, engine))


class Graph:
    """Weights, and what goes into them."""

    def __init__(self, session: Any, folder: Folder) -> None:
        """A loaded model.

        Raises:
            ConfigError: It takes other things than text models do.
        """
        self._session = session
        self._inputs = [one.name for one in session.get_inputs()]
        strange = set(self._inputs) - {
            "input_ids",
            "attention_mask",
            "token_type_ids",
            "position_ids",
        }
        if strange or "input_ids" not in self._inputs:
            reason = (
                f"`{folder.file}` takes {', '.join(self._inputs)}; a model of texts takes input_ids,"
                " and attention_mask, token_type_ids or position_ids beside"
            )
            raise errors.ConfigError(reason=reason)
        self._ranks = {one.name: len(one.shape) for one in session.get_outputs()}

    def _run(
        self, output: str, texts: Sequence[Ids], seconds: Sequence[int]
    ) -> tuple[Floats, Whole]:
        """One output for some texts, and where they are no filling."""
        ids, mask = _filled_up(texts)
        inputs = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            second = np.array(seconds, np.int64)[:, None]
            inputs["token_type_ids"] = mask * (np.arange(ids.shape[1]) >= second)
        if "position_ids" in self._inputs:
            inputs["position_ids"] = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
        given = {name: inputs[name] for name in self._inputs}
        (found,) = self._session.run([output], given)
        return found, mask


class Model(Graph):
    """A model of vectors."""

    def __init__(self, session: Any, folder: Folder, asked: EmbedConfig) -> None:
        """A loaded model.

        Raises:
            ConfigError: It gives other things than such models do.
        """
        super().__init__(session, folder)
        ranks = self._ranks
        pooled = [name for name in _POOLED if ranks.get(name) == 2]
        self._pooling = folder.pooling_for(asked, has_pooled=bool(pooled))
        wanted = (
            pooled if self._pooling is None else [n for n, rank in ranks.items() if rank == 3]
        )
        if not wanted:
            reason = f"`{folder.file}` gives {', '.join(ranks)}, none of which has a vector for each token"
            raise errors.ConfigError(reason=reason)
        self._output = wanted[0]
        normalise = folder.normalises if asked.normalise is None else asked.normalise
        self._normalise = bool(normalise)

    def numbers(self, texts: Sequence[Ids], seconds: Sequence[int]) -> Floats:
        """A vector for each text, of which here are the ids.

        Raises:
            Exception: Whatever onnxruntime raises.
        """
        hidden, mask = self._run(self._output, texts, seconds)
        found = hidden if self._pooling is None else pooled(hidden, mask, self._pooling)
        return _of_length_one(found) if self._normalise else found.astype(np.float32)

    def dimensions(self) -> int:
        """Numbers in a vector, seen on one text."""
        return int(self.numbers([np.zeros(1, np.uint32)], [1]).shape[1])


class Head(Graph):
    """A model that tells classes apart, or scores pairs."""

    def __init__(self, session: Any, folder: Folder, asked: EmbedConfig) -> None:
        """A loaded model.

        Raises:
            ConfigError: It gives other things than such models do.
        """
        del asked
        super().__init__(session, folder)
        flat = [name for name, rank in self._ranks.items() if rank == 2]
        named = [name for name in flat if name == "logits"] or flat
        if not named:
            reason = f"`{folder.file}` gives {', '.join(self._ranks)}, none of which has numbers for a whole text"
            raise errors.ConfigError(reason=reason)
        self._output = named[0]

    def numbers(self, texts: Sequence[Ids], seconds: Sequence[int]) -> Floats:
        """The head's numbers for each text.

        Raises:
            Exception: Whatever onnxruntime raises.
        """
        return self._run(self._output, texts, seconds)[0].astype(np.float32)

    def dimensions(self) -> int:
        """It makes no vectors."""
        return 0


class Onnx:
    """A loaded model and its threads."""

    def __init__(self, model: Model | Head, limits: Limits, options: OnnxOptions) -> None:
        self._model = model
        self.limits = msgspec.structs.replace(limits, dimensions=model.dimensions())
        self._threads = options.threads or len(os.sched_getaffinity(0))
        self._waiting = Waiting(options.step_tokens)
        self._steps = self._computed = self._needed = 0
        self._has_ended = False

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="step") as pool:
            running: dict[Future[Floats], list[Text]] = {}
            while True:
                self._fill(feed, is_idle=not (running or self._waiting))
                # One more than there are threads, so that none waits for this one.
                while self._waiting and len(running) <= self._threads:
                    texts = self._waiting.step()
                    ids, seconds = ([t.ids for t in texts], [t.second for t in texts])
                    running[pool.submit(self._model.numbers, ids, seconds)] = texts
                if not running:
                    break
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    yield list(self._outcomes(done, running.pop(done)))

    def counters(self) -> dict[str, Any]:
        """See `protocol.Engine`."""
        return {
            "steps": self._steps,
            "waiting_rows": self._waiting.rows,
            "filled_share": 1 - self._needed / max(self._computed, 1),
        }

    def close(self) -> None:
        """Free the model."""
        del self._model

    def _fill(self, feed: Feed, *, is_idle: bool) -> None:
        """Take what is there, up to the seats; wait only where there is nothing else to do."""
        while not self._has_ended and self._waiting.rows < self.limits.seats:
            prompts = feed.take(wait=is_idle)
            self._has_ended = prompts is None
            if not prompts:
                return
            self._waiting.add(prompts)
            is_idle = False

    def _outcomes(self, done: Future[Floats], texts: list[Text]) -> Iterator[Outcome]:
        self._steps += 1
        self._needed += sum(text.length for text in texts)
        self._computed += len(texts) * max(text.length for text in texts)
        error = done.exception()
        if error is None:
            vectors = np.ascontiguousarray(done.result(), "<f4")
            yield from self._waiting.finished(texts, [vector.tobytes() for vector in vectors])
        else:
            yield from self._one_by_one(texts)

    def _one_by_one(self, texts: list[Text]) -> Iterator[Outcome]:
        """Texts of a step that failed: who fails alone, too, is the one."""
        for text in texts:
            try:
                vector = self._model.numbers([text.ids], [text.second])[0]
            # The library's own classes again; a row that makes it fail is one row's trouble.
            except Exception as error:
                reason = f"onnxruntime fails on this text: {type(error).__name__}"
                yield from self._waiting.failed(text, errors.Refused.kind, reason)
            else:
                yield from self._waiting.finished([text], [vector.astype("<f4").tobytes()])


def _folder(engine: EngineConfig) -> Folder:
    file = find_file(engine.model, parse(OnnxOptions, engine).file)
    assert file is not None
    return read_folder(file)


def _limits(engine: EngineConfig, folder: Folder) -> Limits:
    longest = engine.max_model_len or folder.max_tokens
    head = None if engine.embed is not None else head_of(folder.config, engine)
    return Limits(
        takes="ids",
        max_model_tokens=longest,
        seats=engine.seats or _SEATS,
        step_tokens=parse(OnnxOptions, engine).step_tokens,
        dimensions=folder.dimensions if head is None else 0,
        labels=head.labels if head else (),
        activation=head.activation if head else "",
        pads=True,
        about=f"onnxruntime: {folder.file.parent.name}/{folder.file.name}",
    )


def _filled_up(texts: Sequence[Ids]) -> tuple[Whole, Whole]:
    """Ids and mask of a step, each text filled up on the right. The mask keeps what is filled up from counting."""
    longest = max(map(len, texts))
    ids = np.zeros((len(texts), longest), np.int64)
    mask = np.zeros((len(texts), longest), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
        mask[row, : len(text)] = 1
    return ids, mask


def pooled(hidden: Floats, mask: Whole, pooling: Pooling) -> Floats:
    """One vector a text.

    Shapes: B texts, T tokens, D numbers; hidden BTD, mask BT, the result BD.
    """
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "last":
        last: Floats = hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1]
        return last
    weights = mask.astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    found: Floats = np.matmul(weights[:, None, :], hidden.astype(np.float32))[:, 0]
    return found


def _of_length_one(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    # Zeros stay zeros: who looks at vectors tells of them.
    found: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return found
