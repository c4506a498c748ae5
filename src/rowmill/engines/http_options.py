"""`[engine]` of a job -> the settings of engine `http`, checked.

Promises: a key never stands in a job; what is no URL of a server is told before anything is sent.
Knows nothing of: requests.
Memory: none kept.
"""

from __future__ import annotations

import os
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, field_validator

from rowmill import errors
from rowmill.engines.options import Options

EFFORT = frozenset(
    (
        "url",
        "api_key",
        "connect_s",
        "first_byte_s",
        "timeout_s",
        "max_attempts",
        "retry_share",
        "back_off_s",
        "max_wait_s",
        "outage_s",
        "stream",
        "texts",
    )
)
"""Settings that change no answer: a run may be resumed with others."""


class HttpOptions(Options):
    """Settings of engine `http`."""

    url: str
    """The endpoint's root, as `http://127.0.0.1:8000` or with its path (`/v1` is added where there is none).
    Several that serve the same model, parted by commas, share the rows."""
    api_key: str = ""
    """`env:NAME`: the environment variable that holds the key. A key itself is refused: it would end in files."""
    connect_s: float = Field(default=10.0, gt=0)
    """Most seconds for making a connection."""
    first_byte_s: float | None = Field(default=None, gt=0)
    """Most seconds without a byte: until an answer begins, and between two pieces of it. None: `timeout_s`.
    An answer that is not streamed begins when it is finished."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Most seconds for one request, from sending to the answer's last byte. Waiting for a seat is not in it."""
    max_attempts: int = Field(default=6, ge=1)
    """Attempts for one row."""
    retry_share: float = Field(default=0.5, ge=0)
    """Repeated requests as a share of answers, 100 more at the start. An endpoint that needs more is taken for down:
    it is asked one row at a time until it answers."""
    back_off_s: float = Field(default=0.5, gt=0)
    """Longest wait after the first failed attempt, doubled with each; once only while the endpoint answers most
    others. The wait is drawn between half of that and all of it."""
    max_wait_s: float = Field(default=120.0, gt=0)
    """Longest wait between two attempts. A server that asks for a longer one gets no further attempt."""
    outage_s: float = Field(default=300.0, ge=0)
    """Endpoints that are all down are waited for so long; then their rows fail."""
    texts: int = Field(default=32, ge=1)
    """Texts to embed in one request, at most; an endpoint that takes fewer is asked with fewer."""
    pairs: Literal["rerank", "score"] = "rerank"
    """Where pairs are scored: `/v1/rerank`, as vLLM, Jina and Cohere have it, or vLLM's `/score`."""
    stream: bool = False
    """Ask for answers piece by piece: a connection between that cuts silent ones off stays open."""
    keep_body: bool = False
    """Keep each answer as it came, in column `body`, beside what is read out of it."""

    @field_validator("url")
    @classmethod
    def _urls_are_http(cls, url: str) -> str:
        for one in split_urls(url) or [""]:
            reason = _mistake(one)
            if reason:
                raise ValueError(reason)
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
    def roots(self) -> list[str]:
        """What paths are put behind, of each endpoint."""
        return list(dict.fromkeys(map(_root, split_urls(self.url))))

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


def split_urls(url: str) -> list[str]:
    """The endpoints that a setting names."""
    return [one.strip() for one in url.split(",") if one.strip()]


def address(root: str, path: str) -> str:
    """Where a path of the API is, below an endpoint's root.

    Example:
        >>> address("http://h/v1", "/v1/embeddings"), address("http://h/v1", "/score")
        ('http://h/v1/embeddings', 'http://h/score')
    """
    if path.startswith("/v1/"):
        return root + path.removeprefix("/v1")
    return root.removesuffix("/v1") + path


def _root(url: str) -> str:
    url = url.rstrip("/")
    for tail in ("/chat/completions", "/completions"):
        url = url.removesuffix(tail)
    return url if urlsplit(url).path else f"{url}/v1"


def _mistake(url: str) -> str:
    """What is wrong with a URL; empty where nothing is."""
    parts = urlsplit(url)
    is_plain = url.isascii() and url.isprintable() and " " not in url and ".." not in url
    if parts.scheme not in ("http", "https") or not _is_host(parts) or not is_plain:
        return "is no URL of a server; give it as `http://HOST:PORT/v1`"
    if parts.query or parts.fragment:
        return "holds a query or a fragment; give the server's root alone, as `http://HOST:PORT/v1`"
    if parts.username or parts.password:
        return 'holds a user or password; name it by `engine.api_key = "env:NAME"`'
    return ""


def _is_host(parts: SplitResult) -> bool:
    try:
        return (
            bool(parts.hostname) and len(parts.hostname or "") < 254 and (parts.port or 1) > 0
        )
    except ValueError:
        return False
