"""A body -> a response, over one session of aiohttp for all endpoints.

Promises: timers are each request's own; what goes wrong on the way is told as ours, without addresses or row text;
proxies and certificate files are those of the environment.
Knows nothing of: rows, what an answer says.
Memory: the response.
"""

from __future__ import annotations

import os
import ssl
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import msgspec

from rowmill import errors
from rowmill.engines.http_stream import Stream

CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables that name a file of certificates to trust."""


class Unreachable(errors.Transient):
    """No connection could be made."""


class Timers(msgspec.Struct, frozen=True, kw_only=True):
    """How long one request may take."""

    connect_s: float
    first_byte_s: float | None
    whole_s: float


class Response(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """An open session."""

    def __init__(self, *, headers: dict[str, str], timers: Timers, streams: bool) -> None:
        import aiohttp

        self._aiohttp, self._timers, self._streams = aiohttp, timers, streams
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=timers.whole_s,
                sock_connect=timers.connect_s,
                sock_read=timers.first_byte_s,
            ),
            # Where set, proxies are looked up for each request, at more than the request's own cost.
            trust_env=bool(urllib.request.getproxies()),
        )

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def post(self, url: str, body: bytes) -> Response:
        """One request.

        Raises:
            Unreachable: No connection.
            TimedOut, Disconnected: No whole answer.
        """
        aiohttp = self._aiohttp
        try:
            async with self._session.post(url, data=body, allow_redirects=False) as response:
                text = await self._read(response)
                return Response(response.status, response.headers, text)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(reason=f"cannot connect to `{url}`: {_cause(error)}") from error
        except aiohttp.SocketTimeoutError as error:
            limit = f"no byte for {self._timers.first_byte_s:g} s (`engine.first_byte_s`)"
            raise errors.TimedOut(reason=limit) from error
        except TimeoutError as error:
            limit = f"no answer in {self._timers.whole_s:g} s (`engine.timeout_s`)"
            raise errors.TimedOut(reason=limit) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection broke: {type(error).__name__}"
            raise errors.Disconnected(reason=reason) from error

    async def _read(self, response: Any) -> bytes:
        is_stream = self._streams and response.content_type == "text/event-stream"
        if not is_stream:
            found: bytes = await response.read()
            return found
        stream = Stream()
        async for piece in response.content.iter_any():
            stream.feed(piece)
        return stream.body()

    async def get(self, url: str, *, most_s: float) -> Response | None:
        """What is at a URL; None where nothing comes."""
        aiohttp = self._aiohttp
        limit = aiohttp.ClientTimeout(total=most_s)
        try:
            async with self._session.get(url, timeout=limit, allow_redirects=False) as response:
                return Response(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError):
            return None


def trusted() -> ssl.SSLContext:
    """Whose certificates are believed: the system's, and those of the files that the environment names."""
    context = ssl.create_default_context()
    for name in CERTIFICATES:
        path = os.environ.get(name)
        try:
            if path:
                context.load_verify_locations(cafile=path)
        except OSError as error:
            reason = f"`{path}`, the file of certificates that `{name}` names, cannot be read ({error.strerror})"
            raise errors.ConfigError(reason=reason) from error
    return context


def _cause(error: Exception) -> str:
    """The system's word for why; the library's own text holds addresses and more."""
    return (getattr(error, "strerror", None) or type(error).__name__).splitlines()[0]
