"""URL -> the bytes it names, from allowed hosts alone.

Promises: a name is resolved once, and what it resolved to is what is asked, so that it cannot become another one between
check and use; no private address is asked unless the list of hosts names that address itself; each redirect is checked as
the first URL was; no proxy, cookie or key is used; never more than `max_bytes` are taken; all tries together end in time.
Knows nothing of: formats, rows.
Memory: one file.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from rowmill.errors import BadMedia, NotFetched
from rowmill.media.origins import address_of, is_public, url_mistake
from rowmill.media_config import MediaConfig

MAX_REDIRECTS = 5
_CHUNK = 1 << 16
_MOVED = frozenset((301, 302, 303, 307, 308))
_PASSING = frozenset((408, 425, 429))
_FIRST_WAIT_S = 0.5
_PORTS = {"http": 80, "https": 443}


class _FailedError(Exception):
    """A try that failed in a way that may pass."""


class Page(msgspec.Struct):
    """What one server said."""

    status: int
    content: bytes
    location: str


def fetch(url: str, field: str, config: MediaConfig) -> bytes:
    """The bytes that a URL names.

    Raises:
        BadMedia: It, or what it leads to, may not be asked; or it is too large.
        NotFetched: It could not be had.
    """
    until = time.monotonic() + config.fetch_s
    reason = ""
    for number in range(1, config.fetch_tries + 1):
        try:
            return _followed(url, field, config, until)
        except _FailedError as error:
            reason = str(error)
        wait = _FIRST_WAIT_S * 2 ** (number - 1)
        if number == config.fetch_tries or time.monotonic() + wait >= until:
            break
        threading.Event().wait(wait)
    tries = f"{number} {'try' if number == 1 else 'tries'}"
    raise NotFetched(reason=f"`{field}`: {reason}; given up after {tries}")


def _followed(url: str, field: str, config: MediaConfig, until: float) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        mistake = url_mistake(url, config.hosts)
        if mistake:
            raise BadMedia(reason=f"`{field}` leads to {mistake}")
        page = _asked(urlsplit(url), field, config, until)
        if page.status == 200:
            return page.content
        if page.status in _MOVED and page.location:
            url = urljoin(url, page.location)
            continue
        if page.status >= 500 or page.status in _PASSING:
            reason = f"HTTP {page.status}"
            raise _FailedError(reason)
        raise NotFetched(reason=f"`{field}`: HTTP {page.status} for its URL")
    raise NotFetched(reason=f"`{field}`: more than {MAX_REDIRECTS} redirects")


def _asked(parts: SplitResult, field: str, config: MediaConfig, until: float) -> Page:
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(_connected(host, port, field, until))
            if parts.scheme == "https":
                safe = ssl.create_default_context()
                sock = stack.enter_context(safe.wrap_socket(sock, server_hostname=host))
            connection = http.client.HTTPConnection(host, port)
            connection.sock = sock
            headers = {"Accept-Encoding": "identity", "User-Agent": "rowmill"}
            connection.request("GET", target, headers={"Host": parts.netloc, **headers})
            response = connection.getresponse()
            content = (
                _content(response, sock, field, config, until)
                if response.status == 200
                else b""
            )
            return Page(response.status, content, response.getheader("Location") or "")
    except TimeoutError as error:
        reason = f"no answer within {config.fetch_s:g} s (`media.fetch_s`)"
        raise _FailedError(reason) from error
    except (OSError, http.client.HTTPException) as error:
        reason = f"{type(error).__name__} while its URL was read"
        raise _FailedError(reason) from error


def _connected(host: str, port: int, field: str, until: float) -> socket.socket:
    """A connection to an address that may be asked."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = "the host of its URL has no address"
        raise _FailedError(reason) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    # A host that is an address was named by the list itself.
    if address_of(host) is None and not all(map(is_public, addresses)):
        reason = (
            f"`{field}`: host `{host[:80]}` is at a private address, which is not asked;"
            " name the address itself in `media.hosts` if it is yours"
        )
        raise BadMedia(reason=reason)
    failed: OSError | None = None
    for address in addresses:
        try:
            return socket.create_connection((address, port), timeout=_left(until))
        except OSError as error:
            failed = error
    raise failed or OSError


def _content(
    response: http.client.HTTPResponse,
    sock: socket.socket,
    field: str,
    config: MediaConfig,
    until: float,
) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        # Anew each time: a server that sends a byte now and then would never be too slow.
        sock.settimeout(_left(until))
        piece = response.read1(_CHUNK)
        if not piece:
            break
        size += len(piece)
        if size > config.max_bytes:
            reason = (
                f"`{field}`: its URL gives more than {config.max_bytes:,} bytes;"
                " make it smaller, or raise `media.max_bytes`"
            )
            raise BadMedia(reason=reason)
        pieces.append(piece)
    if response.length:
        reason = "the connection broke off"
        raise _FailedError(reason)
    return b"".join(pieces)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
