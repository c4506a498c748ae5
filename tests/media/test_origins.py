from __future__ import annotations

import pytest
from pydantic import ValidationError

from rowmill.media.origins import is_public, path_mistake, url_mistake
from rowmill.media_config import MediaConfig

HOSTS = ("img.example.org", "*.cdn.example.org", "127.0.0.1:8000", "[::1]")


@pytest.mark.parametrize(
    "url",
    [
        "https://img.example.org/a.png",
        "http://IMG.example.org./a",
        "https://a.b.cdn.example.org/x?y=1",
        "http://127.0.0.1:8000/x",
        "http://[::1]/x",
    ],
)
def test_url_of_a_host_on_the_list_passes(url: str) -> None:
    assert "" == url_mistake(url, HOSTS)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://example.org/a.png", "host `example.org`"),
        ("https://cdn.example.org/a.png", "not in `media.hosts`"),
        ("https://img.example.org.evil.com/a", "not in `media.hosts`"),
        ("https://evilimg.example.org/a", "not in `media.hosts`"),
        ("https://img.example.org:8443/a", "not in `media.hosts`"),
        ("http://127.0.0.1/x", "not in `media.hosts`"),
        ("http://2130706433:8000/x", "not in `media.hosts`"),
        ("http://user:word@img.example.org/a", "a user or a password"),
        ("https://img.example.org@evil.com/a", "a user or a password"),
        ("file:///etc/passwd", "scheme `file`"),
        ("ftp://img.example.org/a", "scheme `ftp`"),
        ("http://img.example.org\n.evil.com/a", "cannot be read"),
        ("http://img.example.org:99999/", "cannot be read"),
        ("http:///a", "cannot be read"),
    ],
)
def test_any_other_is_refused(url: str, word: str) -> None:
    assert word in url_mistake(url, HOSTS)


def test_without_a_list_no_url_and_without_a_folder_no_path_is_read() -> None:
    assert "media.hosts" in url_mistake("https://img.example.org/a.png", ())
    assert "media.folder" in path_mistake("a.png", "")
    assert "" == path_mistake("a/b.png", "/data")
    assert "base64" in path_mistake("iVBORw0KGgo" * 40, "/data")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("10.1.2.3", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("192.168.0.1", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
    ],
)
def test_private_addresses_are_known_in_every_spelling(address: str, public: bool) -> None:
    assert public == is_public(address)


@pytest.mark.parametrize("host", ["https://example.org", "example.org/a", "a b", "", "*"])
def test_what_is_no_host_is_refused_in_the_job(host: str) -> None:
    with pytest.raises(ValidationError, match="is no host"):
        MediaConfig(hosts=(host,))
