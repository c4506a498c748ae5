"""`http(s)://` of a batch's input or output <-> files of this machine.

Promises: a download is there whole, or not at all; one that was cut off, or whose end cannot be told, is none; what
stands behind the `?` of a URL, which may be a key, is told to nobody and written nowhere.
Knows nothing of: what is in files.
Memory: a piece of 1 MiB.
Source: `-i` and `-o` of `vllm run-batch` 0.32.0, which reads by GET and writes by PUT.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import xxhash

from rowmill import rundir
from rowmill.engines.http_wire import trusted
from rowmill.engines.retry import GiveUp, Policy, after_failure, asked_wait
from rowmill.errors import BadOutput, BadSource, MissingExtra, StorageError
from rowmill.read.formats import FORMAT_BY_SUFFIX, suffix_of
from rowmill.storage import place_of
from rowmill.storage.drafts import Draft, open_draft

POLICY = Policy(max_attempts=6, first_wait_s=1.0, max_wait_s=60.0)
_PASSING = {408, 425, 429, 500, 502, 503, 504}
_CONNECT_S, _SILENT_S = 15.0, 300.0
"""The longest time to connect, and without a byte."""
_PIECE = 1 << 20
_LONGEST_NAME = 100
_SIGNED_BY = ("x-amz-", "x-goog-", "x-oss-", "x-cos-")
_SIGNING = {
    *("signature", "expires", "awsaccesskeyid", "googleaccessid", "key-pair-id", "policy"),
    *("token", "sig", "se", "st", "sp", "sv", "sr", "spr", "sip"),
}
"""Names in a query that say who may ask and until when, not what."""


class Place(NamedTuple):
    """A file that was named by a URL, and where it lies here."""

    url: str
    file: str


class _Failed(Exception):
    """An attempt that came to nothing."""

    def __init__(
        self, reason: str, *, passes: bool = True, wait_s: float | None = None
    ) -> None:
        super().__init__(reason)
        self.passes, self.wait_s = passes, wait_s


def is_url(path: str) -> bool:
    """Whether a path is a URL that is read by GET and written by PUT."""
    return path.lower().startswith(("http://", "https://"))


def shown(url: str) -> str:
    """A URL for people: without user, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def output_place(url: str, folder: str) -> Place:
    """Where the file lies that goes to a URL, until it goes there and after."""
    return Place(url, str(Path(folder) / _name(url)))


def input_place(url: str, number: int, output: str) -> Place:
    """Where a copy of the `number`-th input lies, as long as the run beside `output` may need it."""
    what = [pair for pair in parse_qsl(urlsplit(url).query) if not _is_signature(pair[0])]
    mark = xxhash.xxh3_64_hexdigest(repr((shown(url), what)).encode())[:8]
    folder = Path(f"{output}{rundir.INPUT}")
    return Place(url, str(folder / f"{number}-{mark}-{_name(url)}"))


def _is_signature(name: str) -> bool:
    return name.lower() in _SIGNING or name.lower().startswith(_SIGNED_BY)


def _name(url: str) -> str:
    name = unquote(urlsplit(url).path).rpartition("/")[2].replace("\0", "").lstrip(".")
    name = name[-_LONGEST_NAME:] or "batch"
    return name if suffix_of(name) in FORMAT_BY_SUFFIX else f"{name}.jsonl"


def download(place: Place, tell: Callable[[str], None], policy: Policy = POLICY) -> None:
    """Bring a file here, unless an earlier start did.

    Raises:
        BadSource: it does not come whole; says why.
        StorageError: it cannot be written.
    """
    what = f"`{shown(place.url)}`"
    if Path(place.file).is_file():
        tell(
            f"input   {what} lies in `{place.file}` since an earlier start, and is not asked for again"
        )
        return
    Path(place.file).parent.mkdir(parents=True, exist_ok=True)

    async def attempt(session: Any) -> None:
        draft = open_draft(*place_of(place.file))
        try:
            await _get(session, place.url, draft)
            draft.finish()
        except BaseException:
            draft.abandon()
            raise

    failed = _tried(attempt, policy, tell, f"download of {what}")
    if failed:
        raise BadSource(reason=f"input {what} cannot be read: {failed}")


def upload(place: Place, tell: Callable[[str], None], policy: Policy = POLICY) -> None:
    """Send a file to its URL.

    Raises:
        StorageError: it is not taken; says why.
    """
    size = Path(place.file).stat().st_size

    async def attempt(session: Any) -> None:
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        pieces = _pieces(Path(place.file))
        async with session.put(
            place.url, data=pieces, headers=headers, allow_redirects=False
        ) as response:
            connection = response.connection
            if response.status >= 300 and connection is not None:
                connection.transport.abort()  # the rest of the file is not wanted
            _check(response)

    failed = _tried(attempt, policy, tell, f"upload to `{shown(place.url)}`")
    if failed:
        reason = f"{failed}; the file lies whole in `{place.file}`"
        raise StorageError(path=shown(place.url), reason=reason)


def check_urls(inputs: list[Place], outputs: list[Place]) -> None:
    """See, before anything is asked, that URLs can be used.

    Raises:
        BadSource, BadOutput: one is no URL of a file.
        MissingExtra: aiohttp is not installed.
    """
    for places, error in ((inputs, BadSource), (outputs, BadOutput)):
        for place in places:
            parts = urlsplit(place.url)
            if not parts.hostname or not parts.path.strip("/"):
                raise error(reason=f"`{shown(place.url)}` names no file of a server")
    if (inputs or outputs) and importlib.util.find_spec("aiohttp") is None:
        raise MissingExtra(what="`aiohttp`", extra="http")


async def _get(session: Any, url: str, draft: Draft) -> None:
    # Packed on the way, a file would have another length than the server says.
    async with session.get(url, headers={"Accept-Encoding": "identity"}) as response:
        _check(response)
        is_chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
        if response.content_length is None and not is_chunked:
            reason = "the server does not say where it ends, so half of it would look whole; name a copy of it"
            raise _Failed(reason, passes=False)
        async for piece in response.content.iter_chunked(_PIECE):
            draft.write(piece)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _check(response: Any) -> None:
    if 200 <= response.status < 300 and response.status != 206:
        return
    wait_s = asked_wait(response.headers, now=datetime.now(UTC))
    passes = response.status in _PASSING
    reason = f"the server answers {response.status}"
    raise _Failed(reason, passes=passes, wait_s=wait_s)


Attempt = Callable[[Any], Awaitable[None]]


def _tried(attempt: Attempt, policy: Policy, tell: Callable[[str], None], what: str) -> str:
    """Attempt until it succeeds. Returns: why it never did; empty where it did."""
    began = time.monotonic()
    attempts = 0
    while True:
        attempts += 1
        failed = asyncio.run(_once(attempt))
        if failed is None:
            return ""
        if not failed.passes:
            return str(failed)
        decision = after_failure(
            policy,
            attempts=attempts,
            elapsed_s=time.monotonic() - began,
            retry_after_s=failed.wait_s,
            draw=random.random,
        )
        if isinstance(decision, GiveUp):
            return f"{failed}; given up: {decision.reason}"
        tell(f"rowmill: {what}: {failed}; again in {decision.seconds:.1f} s")
        time.sleep(decision.seconds)


async def _once(attempt: Attempt) -> _Failed | None:
    """One attempt, in a session of its own: what is left of one that broke does no harm."""
    import aiohttp

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=trusted()),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENT_S),
        trust_env=bool(urllib.request.getproxies()),
    )
    try:
        async with session:
            await attempt(session)
    except _Failed as error:
        return error
    except aiohttp.InvalidURL:
        return _Failed("it is no URL", passes=False)
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        # The library's own words hold the address, and with it the key.
        why = getattr(error, "strerror", None) or type(error).__name__
        return _Failed(f"the connection failed ({str(why).splitlines()[0]})")
    except aiohttp.ClientError as error:
        return _Failed(f"the server speaks no HTTP ({type(error).__name__})")
    return None
