"""Prompts -> Outcomes, through OpenAI-compatible endpoints: one, or several that serve the same model.

Promises: a row's own `messages` or `prompt` go out as they stood in the file; see http_requests.py for the rest.
Knows nothing of: how an answer is read, see http_answer.py; what a body holds, see http_body.py; which endpoint
is asked next, see http_lanes.py.
Memory: the rows it holds. Threads: the loop, and one that waits for rows.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import queue
import resource
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.http_labels import wired
from rowmill.engines.http_lanes import Lane, Lanes
from rowmill.engines.http_options import EFFORT, HttpOptions
from rowmill.engines.http_probe import first_length, opener
from rowmill.engines.http_requests import Requests, Settings
from rowmill.engines.http_told import Told
from rowmill.engines.http_window import Window
from rowmill.engines.http_wire import Timers, Wire
from rowmill.engines.options import mistakes, parse
from rowmill.engines.protocol import Feed
from rowmill.engines.retry import Policy
from rowmill.rows import Limits, Outcome
from rowmill.tokens import open_tokenizer
from rowmill.tokens.labels import Labels, encode_labels

__all__ = ["EFFORT", "KINDS", "HttpOptions", "check_options", "declare", "open"]

KINDS = frozenset(("chat", "generate", "embed", "classify", "score", "rerank"))
"""What it can be asked for."""
_MOST_TOKENS = 2**31
_SEATS = 64
"""Requests at once to begin with, of each endpoint, where the job names no number."""
_MOST_SEATS = 512
"""As many may it become."""
_OTHER_FILES = 64
"""File descriptors that are left for all else."""
_OPEN_TRIES = 3
_PROBE_S = 5.0
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
    "regex",
    "ignore_eos",
    "return_token_ids",
    "extra",
)


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each."""
    found = mistakes(HttpOptions, engine)
    if engine.classify is not None and not engine.classify.names:
        found.append(
            "`classify.labels` is missing: engine `http` does not ask an endpoint for the classes of a model with a head;"
            " give labels, or set `engine.name` to `onnx`, `transformers` or `vllm`"
        )
    elif engine.classify is not None and not engine.tokenizer:
        found.append(
            "`engine.tokenizer` is missing: labels are weighed by token ids;"
            " give the folder of the served model's tokenizer"
        )
    return found


def declare(engine: EngineConfig) -> Limits:
    """What can be said without sending a row: the endpoints' lists of models are looked at, if they have one.

    Raises:
        BadJob: Mistakes in its settings.
    """
    options = parse(HttpOptions, engine)
    for root in options.roots:
        try:
            return _limits(engine, options, _models(root, options))
        except OSError:
            continue
    return _limits(engine, options, [])


def open(engine: EngineConfig) -> Http:
    """See that an endpoint answers.

    Raises:
        BadJob: Mistakes in its settings.
        MissingExtra: aiohttp is not installed.
        EngineDied: Nothing listens there.
    """
    options = parse(HttpOptions, engine)
    if importlib.util.find_spec("aiohttp") is None:
        raise errors.MissingExtra(what="`aiohttp`", extra="http")
    models = _models_with_patience(options)
    return Http(engine, options, models)


class Http:
    """Endpoints, one of them seen to be there."""

    minds_time = True

    def __init__(
        self, engine: EngineConfig, options: HttpOptions, models: list[dict[str, Any]]
    ) -> None:
        self.limits = _limits(engine, options, models)
        if engine.embed is not None:
            length = first_length(options, engine.model or _only_name(models), _PROBE_S)
            self.limits = msgspec.structs.replace(self.limits, dimensions=length)
        self._options, self._most = options, engine.seats
        self._labels = _labels(engine)
        self._settings = Settings(
            model=engine.model or _only_name(models),
            outage_s=options.outage_s,
            policy=Policy(
                max_attempts=options.max_attempts,
                first_wait_s=options.back_off_s,
                max_wait_s=options.max_wait_s,
            ),
            streams=options.stream,
            keeps_body=options.keep_body,
            embeds=engine.embed is not None,
            scores=options.pairs if engine.score is not None else "",
            label_tokens=tuple(map(len, self._labels.ids)) if self._labels else (),
            texts=_texts(engine, options),
        )
        self._texts = self._settings.texts
        self._told = Told(finds_seats=engine.seats is None, texts=self._texts)
        self._out: queue.SimpleQueue[list[Outcome] | BaseException | None] = queue.SimpleQueue()

    def run(self, feed: Feed) -> Iterator[list[Outcome]]:
        """See `protocol.Engine`."""
        threading.Thread(target=self._loop, args=(feed,), name="http", daemon=True).start()
        has_ended = False
        while not has_ended:
            outcomes: list[Outcome] = []
            item = self._out.get()
            while True:
                if isinstance(item, BaseException):
                    raise item
                has_ended = item is None
                outcomes += item or []
                if has_ended or self._out.empty():
                    break
                item = self._out.get()
            yield outcomes

    def counters(self) -> dict[str, Any]:
        """See `protocol.Engine`."""
        return self._told.counters()

    def close(self) -> None:
        """Nothing is held beyond `run`."""

    def _loop(self, feed: Feed) -> None:
        try:
            asyncio.run(self._serve(feed))
        # Whatever ends the loop ends the engine: it is raised again by `run`, in the main thread.
        except BaseException as error:
            self._out.put(error)
        else:
            self._out.put(None)

    async def _serve(self, feed: Feed) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        timers = Timers(
            connect_s=options.connect_s,
            first_byte_s=options.first_byte_s,
            whole_s=options.timeout_s,
        )
        async with Wire(headers=options.headers, timers=timers, streams=options.stream) as wire:
            requests = Requests(
                self._lanes(loop.time()),
                self._settings,
                wire=wire,
                deliver=self._out.put,
                told=self._told,
            )

            def fill() -> None:
                while (prompts := feed.take(wait=True)) is not None:
                    if self._labels is not None:
                        prompts = wired(prompts, self._labels)
                    loop.call_soon_threadsafe(requests.add, prompts)
                loop.call_soon_threadsafe(requests.end)

            threading.Thread(target=fill, name="take", daemon=True).start()
            await requests.run()

    def _lanes(self, now: float) -> Lanes:
        roots = self._options.roots
        most = min(self._most or _MOST_SEATS * len(roots), _most_files())
        start = -(-self.limits.seats // self._texts // len(roots))

        def lane(root: str) -> Lane:
            window = Window(start=start, ceiling=most, now=now)
            return Lane(root, window, retry_share=self._options.retry_share)

        return Lanes([lane(root) for root in roots], seats=most)


def _most_files() -> int:
    """Connections that the limit of open files leaves room for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, limit - _OTHER_FILES) if limit > 0 else _MOST_TOKENS


def _limits(engine: EngineConfig, options: HttpOptions, models: list[dict[str, Any]]) -> Limits:
    name = engine.model or _only_name(models)
    lengths = [m.get("max_model_len") for m in models if m.get("id") == name]
    told = next((n for n in lengths if type(n) is int and 0 < n < _MOST_TOKENS), 0)
    roots = options.roots
    where = roots[0] if len(roots) == 1 else f"{len(roots)} endpoints, {roots[0]} and on"
    return Limits(
        takes="wire" if engine.classify is None else "ids",
        max_model_tokens=engine.max_model_len or told,
        seats=(engine.seats or _SEATS * len(roots)) * _texts(engine, options),
        sampling=_SAMPLING if engine.classify is None else (),
        media=("image", "audio") if engine.is_asked_for_texts else (),
        # It has done already what its model needs.
        activation="none" if engine.score is not None else "",
        served=name,
        about=f"http: {name or 'the model served'} at {where}; a request may take {options.timeout_s:g} s",
    )


def _texts(engine: EngineConfig, options: HttpOptions) -> int:
    """Rows in one request."""
    return options.texts if engine.embed is not None and not options.keep_body else 1


def _labels(engine: EngineConfig) -> Labels | None:
    """The labels of a job in the tokens of the served model; None where it has none."""
    if engine.classify is None:
        return None
    tokenizer = open_tokenizer(engine)
    assert tokenizer is not None
    return encode_labels(engine.classify, tokenizer)


def _only_name(models: list[dict[str, Any]]) -> str:
    """The model's name where the endpoint serves one; else none is sent and the endpoint chooses."""
    return str(models[0].get("id", "")) if len(models) == 1 else ""


def _models_with_patience(options: HttpOptions) -> list[dict[str, Any]]:
    """The models of the first endpoint that answers.

    Raises:
        EngineDied: Nothing listens at any.
    """
    failed: OSError | None = None
    for tries in range(1, _OPEN_TRIES + 1):
        for root in options.roots:
            try:
                return _models(root, options)
            except OSError as error:
                failed = error
        time.sleep(0.5 * tries if tries < _OPEN_TRIES else 0)
    cause = getattr(failed, "reason", None) or failed
    raise errors.EngineDied(
        reason=f"cannot reach `{'`, `'.join(options.roots)}` ({cause}), tried {_OPEN_TRIES} times;"
        " start the server, or correct `engine.url`"
    ) from failed


def _models(root: str, options: HttpOptions) -> list[dict[str, Any]]:
    """What `GET /models` lists; nothing where the endpoint has no such list.

    Raises:
        OSError: Nothing listens there.
    """
    request = urllib.request.Request(f"{root}/models", headers=options.headers)
    try:
        with opener(root).open(request, timeout=_PROBE_S) as response:
            found = msgspec.json.decode(response.read())
    except (urllib.error.HTTPError, msgspec.DecodeError, RecursionError):
        return []
    except http.client.HTTPException as error:
        reason = f"it speaks no HTTP: {type(error).__name__}"
        raise ConnectionError(reason) from error
    listed = found.get("data") if isinstance(found, dict) else None
    return (
        [entry for entry in listed if isinstance(entry, dict)]
        if isinstance(listed, list)
        else []
    )
