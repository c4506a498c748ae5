from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from rowmill.errors import BadMedia, NotFetched, RowError
from rowmill.media.reading import digest_of, read
from rowmill.media_config import MediaConfig
from rowmill.media_item import Media
from tests.media.servers import Page, site


def at(path: str, digest: str = "") -> Media:
    return Media("image", "path", "photo", where=path, digest=digest)


def of(url: str) -> Media:
    return Media("image", "url", "photo", where=url)


def refusal(media: Media, config: MediaConfig) -> str:
    with pytest.raises(RowError) as caught:
        read(media, config)
    return str(caught.value)


def test_files_below_the_folder_are_read_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inner").symlink_to(folder / "sub" / "a")
    os.mkfifo(folder / "pipe")
    config = MediaConfig(folder=str(folder))

    assert b"inside" == read(at("sub/a"), config) == read(at("inner"), config)
    assert b"inside" == read(at(str(folder / "sub" / "a")), config)
    for outside in ("../secret", "link", str(tmp_path / "secret"), "/etc/hostname"):
        assert "leads out of `media.folder`" in refusal(at(outside), config)
    assert "what is no file" in refusal(at("pipe"), config)
    assert "is a directory" in refusal(at("sub"), config)
    assert "no such file" in refusal(at("gone"), config)
    assert "cannot be read" in refusal(at("a" * 5000), config)


def test_file_that_is_too_large_or_was_changed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)

    too_large = refusal(at("a"), MediaConfig(folder=str(tmp_path), max_bytes=10))
    changed = refusal(at("a", digest_of(b"other")), MediaConfig(folder=str(tmp_path)))

    assert "11 bytes, allowed are 10" in too_large
    assert "was changed" in changed


def test_url_is_read_from_an_allowed_host_through_redirects() -> None:
    pages = {"/a": (302, b"", "/b"), "/b": (301, b"", "c?d=1"), "/c?d=1": (200, b"found", "")}
    with site(pages) as server:
        config = MediaConfig(hosts=(server.host,))

        assert b"found" == read(of(f"http://{server.host}/a"), config)
        assert [server.host] * 3 == server.hosts


def test_redirect_out_of_the_list_is_not_followed() -> None:
    with site({"/x": (200, b"secret", "")}) as other:
        away = {
            f"/{i}": (302, b"", to)
            for i, to in enumerate((f"http://{other.host}/x", "file:///x"))
        }
        with site(away) as server:
            config = MediaConfig(hosts=(server.host,))

            refusals = [refusal(of(f"http://{server.host}/{i}"), config) for i in range(2)]

        assert not other.asked
    assert "not in `media.hosts`" in refusals[0]
    assert "scheme `file`" in refusals[1]


def test_name_at_a_private_address_is_not_asked() -> None:
    with site({"/x": (200, b"secret", "")}) as server:
        port = server.host.rpartition(":")[2]
        config = MediaConfig(hosts=(f"localhost:{port}",))

        assert "private address" in refusal(of(f"http://localhost:{port}/x"), config)
        assert not server.asked


def test_what_may_pass_is_tried_again_and_what_may_not_is_not() -> None:
    pages: dict[str, Page | list[Page]] = {
        "/busy": [(503, b"", ""), (200, b"found", "")],
        "/down": (500, b"", ""),
        "/round": (302, b"", "/round"),
    }
    with site(pages) as server:
        config = MediaConfig(hosts=(server.host,), fetch_tries=2)

        assert b"found" == read(of(f"http://{server.host}/busy"), config)
        gone = refusal(of(f"http://{server.host}/gone"), config)
        down = refusal(of(f"http://{server.host}/down"), config)
        around = refusal(of(f"http://{server.host}/round"), config)

        assert 1 == server.asked["/gone"]
        assert 2 == server.asked["/down"]
    assert "HTTP 404" in gone
    assert "HTTP 500; given up after 2 tries" in down
    assert "redirects" in around


def test_answer_is_cut_off_where_it_is_too_large() -> None:
    with site({"/x": (200, b"x" * 100_000, "")}) as server:
        config = MediaConfig(hosts=(server.host,), max_bytes=50_000)

        with pytest.raises(BadMedia, match="more than 50,000 bytes"):
            read(of(f"http://{server.host}/x"), config)


def test_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = MediaConfig(hosts=(f"127.0.0.1:{port}",), fetch_s=0.2, fetch_tries=1)

        with pytest.raises(NotFetched, match=r"no answer within 0\.2 s"):
            read(of(f"http://127.0.0.1:{port}/x"), config)


def test_server_that_drips_is_given_up() -> None:
    """A byte now and then must not hold a row for ever: all of it has a time limit."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        port = server.getsockname()[1]
        config = MediaConfig(hosts=(f"127.0.0.1:{port}",), fetch_s=0.3, fetch_tries=1)
        try:
            with pytest.raises(NotFetched, match="no answer within"):
                read(of(f"http://127.0.0.1:{port}/x"), config)
        finally:
            stop.set()
            thread.join()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_https_is_asked_of_the_address_and_trusted_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with site({"/x": (200, b"found", "")}, context) as server:
        config = MediaConfig(hosts=(server.host,), fetch_tries=1)

        untrusted = refusal(of(f"https://{server.host}/x"), config)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        found = read(of(f"https://{server.host}/x"), config)

    assert "SSLCertVerificationError" in untrusted
    assert b"found" == found
