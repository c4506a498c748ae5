"""Output -> its page on a port of this machine, brought up to date while somebody looks.

Promises: read-only; heard on 127.0.0.1 alone, and only by who knows the address: it has a word in it that cannot be guessed,
for other users of the machine can reach the port too; a request under another host's name is refused.
Knows nothing of: how a page is made.
Memory: see account.py; one page.
"""

from __future__ import annotations

import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rowmill.errors import RowmillError
from rowmill.report.account import Looking
from rowmill.report.page import html_of, live_script, page_of
from rowmill.report.run import open_view

LOOPBACK = "127.0.0.1"
LEAST_S = 1.0
"""Between two looks at a run."""
PATIENCE = 4.0
"""A look that takes long is made as seldom as leaves it a fifth of the time."""


class Live:
    """The page of a run, made anew when it is asked for and old."""

    def __init__(self, output: str) -> None:
        """See that there is a run; it is looked at when somebody asks. Raises: ConfigError where there is none."""
        open_view(output)
        self._looking = Looking(output)
        self._script = live_script()
        self._lock = threading.Lock()
        self._due_at = 0.0
        self._page = b""

    def page(self) -> bytes:
        """The page as it is now, or was a moment ago. Raises: RowmillError."""
        with self._lock:
            if time.monotonic() >= self._due_at:
                began = time.monotonic()
                found = html_of(page_of(self._looking.look()), script=self._script)
                took = time.monotonic() - began
                self._page = found.encode()
                self._due_at = time.monotonic() + max(LEAST_S, PATIENCE * took)
            return self._page


class Watch:
    """A server for one run. `address` is where it is."""

    def __init__(self, output: str, port: int = 0) -> None:
        """Listen on a free port, or the one that is named.

        Raises:
            ConfigError: there is no run.
            OSError: the port is taken.
        """
        self._server = _Server(port, Live(output))
        self.address = f"http://{LOOPBACK}:{self._server.server_port}/{self._server.word}/"

    def serve(self) -> None:
        """Answer until `close` is called from another thread, or the process is interrupted."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """End, from another thread."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A server that knows what it shows."""

    daemon_threads = True

    def __init__(self, port: int, live: Live) -> None:
        self.live, self.word = live, secrets.token_urlsafe(12)
        super().__init__((LOOPBACK, port), _Answering)


class _Answering(BaseHTTPRequestHandler):
    """One request."""

    server: _Server
    server_version = "rowmill"
    sys_version = ""

    def do_GET(self) -> None:
        host, _, _ = (self.headers.get("Host") or "").partition(":")
        path = self.path.partition("?")[0]
        if host not in (LOOPBACK, "localhost"):
            self._say(HTTPStatus.FORBIDDEN, "another host's name")
        elif path != f"/{self.server.word}/":
            self._say(HTTPStatus.NOT_FOUND, "`rowmill watch` printed another address")
        else:
            self._show()

    def _show(self) -> None:
        try:
            content = self.server.live.page()
        except RowmillError as error:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", content)

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"rowmill: {text}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Tell nothing: a browser asks every two seconds."""
