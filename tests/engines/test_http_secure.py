"""An endpoint behind TLS: trusted by the file of certificates that the environment names, else not asked."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rowmill import errors
from rowmill.config import EngineConfig
from rowmill.engines import http
from tests.engines.endpoint import wire_prompts
from tests.engines.feeds import answers_of

pytestmark = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl makes the certificate"
)
ANSWER = b'{"choices": [{"text": "sure"}]}'


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(b'{"data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(ANSWER)

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(words, check=True, capture_output=True)
    return tmp_path / "cert.pem"


@pytest.fixture
def url(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_is_trusted_where_the_environment_says_so(
    url: str, certificate: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(certificate))

    (outcome,) = answers_of(http.open(EngineConfig(name="http", url=url)), wire_prompts(["a"]))

    assert ("ok", "sure") == (outcome.status, outcome.text)


def test_another_certificate_is_not(url: str) -> None:
    with pytest.raises(errors.EngineDied, match="CERTIFICATE_VERIFY_FAILED"):
        http.open(EngineConfig(name="http", url=url))


def test_a_file_of_certificates_that_is_none_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")

    with pytest.raises(errors.ConfigError, match="/no/such/file"):
        http.open(EngineConfig(name="http", url=url))
