"""A run that is watched: heard on this machine alone, by who has the address, and nothing at the output is touched."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rowmill.errors import ConfigError
from rowmill.report.watching import Watch


@pytest.fixture
def watch(small_run: Path) -> Iterator[Watch]:
    found = Watch(str(small_run))
    thread = threading.Thread(target=found.serve)
    thread.start()
    yield found
    found.close()
    thread.join()


def ask(address: str, path: str = "", host: str = "") -> tuple[int, str]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    connection.request("GET", path or parts.path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")
    }


def test_the_page_is_served_and_nothing_is_changed(watch: Watch, small_run: Path) -> None:
    before = state(small_run)

    status, text = ask(watch.address)

    assert status == 200
    assert "Throughput over time" in text
    assert state(small_run) == before


def test_it_is_heard_on_this_machine_alone(watch: Watch) -> None:
    assert urlsplit(watch.address).hostname == "127.0.0.1"
    assert watch._server.server_address[0] == "127.0.0.1"


def test_who_does_not_know_the_address_sees_nothing(watch: Watch) -> None:
    for path in ("/", "/report", f"{urlsplit(watch.address).path}x", "/../etc/passwd"):
        status, text = ask(watch.address, path)

        assert status == 404
        assert "Throughput" not in text


def test_a_page_of_another_host_cannot_read_it(watch: Watch) -> None:
    """A name that resolves to 127.0.0.1 makes a browser ask here under that name."""
    status, text = ask(watch.address, host="evil.example:80")

    assert status == 403
    assert "Throughput" not in text


def test_there_must_be_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        Watch(str(tmp_path))
