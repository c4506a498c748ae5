"""An HTTP proxy on 127.0.0.1 before a real S3 server, that lets requests through or does them harm on a schedule.

What it does to which request, by number, is drawn before; what came of it is kept request by request.
Signatures stay good: hosts and headers are passed on as they come.
"""

from __future__ import annotations

import contextlib
import http.client
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

Harm = Literal["slow down", "late", "unanswered", "cut", "lost"]
"""`slow down`: 503 and nothing done. `late`: done and answered after a while. `unanswered`: done, and the connection
ends without a word. `cut`: done, and the answer ends in its middle. `lost`: not done, and the connection ends after a while."""

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
HOP = {"connection", "keep-alive", "transfer-encoding", "trailer", "upgrade"}
UPSTREAM_S = 60.0


class Aim(NamedTuple):
    """Harm to requests of one kind: to the `number`-th one with this in its path, counted from 0."""

    method: str
    part: str
    number: int
    harm: Harm


@dataclass
class Asked:
    """A request, and what was made of it."""

    number: int
    method: str
    path: str
    """Without the query."""
    what: str
    """The same for requests that ask the same."""
    at: float
    harm: Harm | None
    status: int = 0
    """That the client was told; 0: none."""
    done_at: float = 0.0
    was_told: bool = False
    """Whether the client was still there for what the harm left of the answer."""


@dataclass
class Plan:
    """Which requests come to harm, by number, and how long a delay is."""

    harms: Mapping[int, Harm]
    aims: Sequence[Aim] = ()
    delay_s: float = 0.4
    is_down: threading.Event = field(default_factory=threading.Event)
    """While set, every request ends without an answer."""


class S3Proxy:
    """See the module. Use as a context."""

    def __init__(self, upstream: str, plan: Plan) -> None:
        self.plan = plan
        self.asked: list[Asked] = []
        self._upstream = urlsplit(upstream).netloc
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            s3 = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> S3Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, method: str, part: str) -> int:
        """Requests that went well so far, of a method and with this in their path."""
        asked = list(self.asked)
        return sum(
            one.method == method and part in one.path and 200 <= one.status < 300
            for one in asked
        )

    def came_to_harm(self) -> Iterator[tuple[Harm, bool]]:
        """Each harm done, and whether its effect was seen: the client asked again, or got its answer late."""
        asked = list(self.asked)
        for i, one in enumerate(asked):
            if one.harm is None:
                continue
            if one.harm == "late":
                yield one.harm, one.was_told and one.done_at - one.at >= self.plan.delay_s
                continue
            yield one.harm, one.was_told and any(o.what == one.what for o in asked[i + 1 :])

    def longest_write_s(self, since: float) -> float:
        """From the first request that writes a segment to the one that did, at most."""
        first: dict[str, float] = {}
        longest = 0.0
        for one in list(self.asked):
            if one.method == "PUT" and "/segments/" in one.path and one.at >= since:
                began = first.setdefault(one.path, one.at)
                longest = max(longest, (one.done_at or time.monotonic()) - began)
        return longest

    def begin(self, method: str, target: str, body: bytes) -> Asked:
        """Note a request."""
        # What is put differs with each try where a counter stands in it; what is deleted does not.
        what = f"{method} {target} {zlib.crc32(body) if method == 'POST' else ''}"
        with self._lock:
            number = len(self.asked)
            path = urlsplit(target).path
            harm = self.plan.harms.get(number) or self._aimed(method, path)
            one = Asked(number, method, path, what, time.monotonic(), harm)
            self.asked.append(one)
        return one

    def _aimed(self, method: str, path: str) -> Harm | None:
        for aim in self.plan.aims:
            if aim.method == method and aim.part in path:
                same = [
                    one for one in self.asked if one.method == method and aim.part in one.path
                ]
                if len(same) == aim.number:
                    return aim.harm
        return None

    def forward(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask the real server."""
        connection = http.client.HTTPConnection(self._upstream, timeout=UPSTREAM_S)
        with contextlib.closing(connection):
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients are killed here: of those nothing is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer of several small pieces would wait for the client's acknowledgement between them.
    disable_nagle_algorithm = True
    wbufsize = -1
    s3: S3Proxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        one = self.s3.begin(self.command, self.path, body)
        plan = self.s3.plan
        if plan.is_down.is_set():
            self._hang_up(one)
        elif one.harm == "slow down":
            self._answer(one, 503, [("content-type", "application/xml")], SLOW_DOWN)
        elif one.harm == "lost":
            time.sleep(plan.delay_s)
            self._hang_up(one)
        else:
            self._forward(one, body)

    def _forward(self, one: Asked, body: bytes) -> None:
        headers = [(k, v) for k, v in self.headers.items() if k.lower() not in HOP]
        if one.harm == "late":
            time.sleep(self.s3.plan.delay_s)
        status, answered, content = self.s3.forward(self.command, self.path, headers, body)
        if one.harm == "unanswered" or (one.harm == "cut" and len(content) < 2):
            self._hang_up(one)
            return
        self._answer(one, status, answered, content, is_cut=one.harm == "cut")

    def _answer(
        self,
        one: Asked,
        status: int,
        headers: list[tuple[str, str]],
        content: bytes,
        *,
        is_cut: bool = False,
    ) -> None:
        sized = {k.lower() for k, _ in headers}
        try:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in HOP and (
                    self.command == "HEAD" or name.lower() != "content-length"
                ):
                    self.send_header(name, value)
            if self.command != "HEAD" or "content-length" not in sized:
                self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
            self.wfile.flush()
            one.was_told = True
        except OSError:
            is_cut = True
        one.status, one.done_at = (0 if is_cut else status), time.monotonic()
        self.close_connection = self.close_connection or is_cut

    def _hang_up(self, one: Asked) -> None:
        one.was_told, one.done_at = True, time.monotonic()
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
