"""A store in front of the real one that fails as stores do: SlowDown, cut connections, half answers.

It forwards what it lets through to the real server, untouched: signatures hold, and what was written was written.
"""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import unquote, urlsplit

from tests.servers.s3_server import S3Server

Fault = Literal["", "slow down", "error", "cut before", "cut after", "half answer"]
SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Reduce your request rate.</Message></Error>"
)


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    at: float
    method: str
    path: str
    """Bucket and key, without the query."""
    tries: int
    """Requests of this method for this path, this one among them."""
    fault: Fault


Plan = Callable[[Asked], Fault]
"""What befalls a request; it is told everything but that."""


def first(num: int, fault: Fault, *methods: str) -> Plan:
    """The first so many tries of each object fail."""
    return lambda asked: fault if asked.tries <= num and asked.method in methods else ""


@dataclass
class Faulty:
    """A store that fails by plan, and what was asked of it."""

    server: S3Server
    plan: Plan
    asked: list[Asked] = field(default_factory=list)
    _tries: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, method: str, path: str) -> Asked:
        """Write a request down, and decide what befalls it."""
        with self._lock:
            self._tries[method, path] += 1
            asked = Asked(time.monotonic(), method, path, self._tries[method, path], "")
            asked = replace(asked, fault=self.plan(asked))
            self.asked.append(asked)
        return asked

    def of(self, key: str, *methods: str) -> list[Asked]:
        """The requests for an object."""
        with self._lock:
            return [a for a in self.asked if a.path.endswith(key) and a.method in methods]


class _Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = self.server.faults.note(self.command, unquote(urlsplit(self.path).path))
        if asked.fault == "cut before":
            self.close_connection = True
            return
        if asked.fault in ("slow down", "error"):
            status = 503 if asked.fault == "slow down" else 500
            self.answer(status, SLOW_DOWN if status == 503 else b"", {})
            return
        status, headers, content = forward(self.server.upstream, self, body)
        if asked.fault == "cut after":
            self.close_connection = True
            return
        self.answer(status, content, headers, half=asked.fault == "half answer")

    def answer(
        self, status: int, content: bytes, headers: dict[str, str], *, half: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if half else content)
        if half:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, faults: Faulty, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Front)
        self.faults, self.upstream = faults, upstream

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away in the middle: that is what this is for."""


@contextmanager
def faulty(behind: S3Server, plan: Plan) -> Iterator[Faulty]:
    """A store on a port of its own that fails by plan, and else does what the one behind it does."""
    faults = Faulty(behind, plan)
    front = _Server(faults, urlsplit(behind.endpoint).netloc)
    thread = threading.Thread(target=front.serve_forever, daemon=True)
    thread.start()
    faults.server = replace(behind, endpoint=f"http://127.0.0.1:{front.server_address[1]}")
    try:
        yield faults
    finally:
        front.shutdown()
        front.server_close()
        thread.join()


def forward(
    upstream: str, request: BaseHTTPRequestHandler, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """What the real server answers."""
    connection = http.client.HTTPConnection(upstream, timeout=120)
    try:
        connection.putrequest(
            request.command, request.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content = answer.read()
        kept = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in ("connection", "transfer-encoding", "keep-alive")
        }
        if request.command != "HEAD":
            kept = {n: v for n, v in kept.items() if n.lower() != "content-length"}
        return answer.status, kept, content
    finally:
        connection.close()
