"""Prompts -> Outcomes, through any OpenAI-compatible endpoint.

Promises: a row's own `messages` or `prompt` go out as they stood in the file; see http_requests.py for the rest.
Knows nothing of: how an answer is read, see http_answer.py; what a body holds, see http_body.py.
Memory: the rows it holds. Threads: the loop, and one that waits for rows.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import os
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
from pydantic import Field, field_validator

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines.http_requests import Endpoint, Requests
from rowmill.engines.options import Options, mistakes, parse
from rowmill.engines.protocol import Feed
from rowmill.engines.retry import Policy
from rowmill.rows import Limits, Outcome

_MOST_TOKENS = 2**31
_SEATS = 64
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

EFFORT = frozenset(
    (
        "url",
        "api_key",
        "connect_s",
        "timeout_s",
        "max_attempts",
        "back_off_s",
        "max_wait_s",
        "outage_s",
    )
)
"""Settings that change no answer: a run may be resumed with others."""


class HttpOptions(Options):
    """Settings of engine `http`."""

    url: str
    """The endpoint's root, as `http://127.0.0.1:8000` or with its path (`/v1` is added where there is none)."""
    api_key: str = ""
    """`env:NAME`: the environment variable that holds the key. A key itself is refused: it would end in files."""
    connect_s: float = Field(default=10.0, gt=0)
    """Most seconds for making a connection."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Most seconds for one request, from sending to the answer's last byte. Waiting for a seat is not in it."""
    max_attempts: int = Field(default=6, ge=1)
    """Attempts for one row."""
    back_off_s: float = Field(default=0.5, gt=0)
    """Longest wait after the first failed attempt, doubled with each; the wait is drawn between 0 and that."""
    max_wait_s: float = Field(default=120.0, gt=0)
    """Longest wait between two attempts. A server that asks for a longer one gets no further attempt."""
    outage_s: float = Field(default=300.0, ge=0)
    """An endpoint that cannot be connected to is waited for so long, without counting attempts."""

    @field_validator("url")
    @classmethod
    def _url_is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        is_plain = url.isascii() and url.isprintable() and " " not in url and ".." not in url
        if parts.scheme not in ("http", "https") or not _is_host(parts) or not is_plain:
            msg = "is no URL of a server; give it as `http://HOST:PORT/v1`"
            raise ValueError(msg)
        if parts.query or parts.fragment:
            msg = "holds a query or a fragment; give the server's root alone, as `http://HOST:PORT/v1`"
            raise ValueError(msg)
        if parts.username or parts.password:
            msg = 'holds a user or password; name it by `engine.api_key = "env:NAME"`'
            raise ValueError(msg)
        return url

    @field_validator("api_key")
    @classmethod
    def _key_is_a_reference(cls, api_key: str) -> str:
        name = api_key.removeprefix("env:")
        if api_key and (name == api_key or not name.isidentifier()):
            msg = (
                "is not a reference; put the key in an environment variable and give `env:NAME`"
            )
            raise ValueError(msg)
        if api_key and not os.environ.get(name):
            msg = f"names the environment variable `{name}`, which is not set"
            raise ValueError(msg)
        return api_key

    @property
    def root(self) -> str:
        """What paths are put behind."""
        url = self.url.rstrip("/")
        for tail in ("/chat/completions", "/completions"):
            url = url.removesuffix(tail)
        return url if urlsplit(url).path else f"{url}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            name = self.api_key.removeprefix("env:")
            key = os.environ[name]
            if not (key.isascii() and key.isprintable()):
                reason = f"the key in environment variable `{name}` holds characters that no header takes; set it anew"
                raise errors.ConfigError(reason=reason)
            headers["Authorization"] = f"Bearer {key}"
        return headers


def _is_host(parts: SplitResult) -> bool:
    try:
        return (
            bool(parts.hostname) and len(parts.hostname or "") < 254 and (parts.port or 1) > 0
        )
    except ValueError:
        return False


def check_options(engine: EngineConfig) -> list[str]:
    """Mistakes in the settings of this engine, a sentence each."""
    return mistakes(HttpOptions, engine)


def declare(engine: EngineConfig) -> Limits:
    """What can be said without sending a row: the endpoint's list of models is looked at, if it has one.

    Raises:
        BadJob: Mistakes in its settings.
    """
    options = parse(HttpOptions, engine)
    try:
        return _limits(engine, _models(options))
    except OSError:
        return _limits(engine, [])


def open(engine: EngineConfig) -> Http:
    """See that the endpoint answers.

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
    """An endpoint, seen to be there."""

    minds_time = True

    def __init__(
        self, engine: EngineConfig, options: HttpOptions, models: list[dict[str, Any]]
    ) -> None:
        self.limits = _limits(engine, models)
        self._endpoint = Endpoint(
            root=options.root,
            headers=options.headers,
            model=engine.model or _only_name(models),
            seats=self.limits.seats,
            connect_s=options.connect_s,
            timeout_s=options.timeout_s,
            outage_s=options.outage_s,
            policy=Policy(
                max_attempts=options.max_attempts,
                first_wait_s=options.back_off_s,
                max_wait_s=options.max_wait_s,
            ),
        )
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
        requests = Requests(self._endpoint, self._out.put)
        loop = asyncio.get_running_loop()

        def fill() -> None:
            while (prompts := feed.take(wait=True)) is not None:
                loop.call_soon_threadsafe(requests.add, prompts)
            loop.call_soon_threadsafe(requests.end)

        threading.Thread(target=fill, name="take", daemon=True).start()
        await requests.run()


def _limits(engine: EngineConfig, models: list[dict[str, Any]]) -> Limits:
    name = engine.model or _only_name(models)
    lengths = [m.get("max_model_len") for m in models if m.get("id") == name]
    told = next((n for n in lengths if type(n) is int and 0 < n < _MOST_TOKENS), 0)
    return Limits(
        takes="wire",
        max_model_tokens=engine.max_model_len or told,
        seats=engine.seats or _SEATS,
        sampling=_SAMPLING,
        about=f"http: {name or 'the model served'} at {parse(HttpOptions, engine).root}",
    )


def _only_name(models: list[dict[str, Any]]) -> str:
    """The model's name where the endpoint serves one; else none is sent and the endpoint chooses."""
    return str(models[0].get("id", "")) if len(models) == 1 else ""


def _models_with_patience(options: HttpOptions) -> list[dict[str, Any]]:
    """The endpoint's models.

    Raises:
        EngineDied: Nothing listens there.
    """
    for tries in range(1, _OPEN_TRIES + 1):
        try:
            return _models(options)
        except OSError as error:
            if tries == _OPEN_TRIES:
                cause = getattr(error, "reason", None) or error
                raise errors.EngineDied(
                    reason=f"cannot reach `{options.root}` ({cause}), tried {tries} times;"
                    " start the server, or correct `engine.url`"
                ) from error
        time.sleep(0.5 * tries)
    return []


def _models(options: HttpOptions) -> list[dict[str, Any]]:
    """What `GET /models` lists; nothing where the endpoint has no such list.

    Raises:
        OSError: Nothing listens there.
    """
    request = urllib.request.Request(f"{options.root}/models", headers=options.headers)
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_S) as response:
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
