"""A web server on 127.0.0.1 with scripted pages, in a thread of the test: what was asked is counted."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Page = tuple[int, bytes, str]
"""Status, content, and where to go instead."""


class Site(ThreadingHTTPServer):
    """Pages by path."""

    daemon_threads = True

    def __init__(self, pages: Mapping[str, Page | list[Page]]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.pages, self.asked = pages, Counter[str]()
        self.hosts: list[str] = []

    @property
    def host(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        path = self.path
        page = self.server.pages.get(path, (404, b"", ""))
        if isinstance(page, list):
            page = page[min(self.server.asked[path], len(page) - 1)]
        self.server.asked[path] += 1
        self.server.hosts.append(self.headers["Host"])
        status, content, location = page
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def site(
    pages: Mapping[str, Page | list[Page]], context: ssl.SSLContext | None = None
) -> Iterator[Site]:
    """A site that ends with the block."""
    server = Site(pages)
    if context is not None:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
