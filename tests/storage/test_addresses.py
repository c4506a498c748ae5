"""Addresses of object stores: what they name, and what may not stand in them."""

from __future__ import annotations

import pytest

from rowmill.errors import ConfigError
from rowmill.read.buckets import fixed_root, reaches
from rowmill.storage import ObjectStorage, open_storage
from rowmill.storage.addresses import Address, is_remote, parse_address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://b", ("s3", "b", "")),
        ("s3://b/", ("s3", "b", "")),
        ("S3://b/a/b/", ("s3", "b", "a/b")),
        ("gs://b/x y [1]#.jsonl", ("gs", "b", "x y [1]#.jsonl")),
        ("az://c/a", ("az", "c", "a")),
    ],
)
def test_an_address_has_parts(url: str, expected: tuple[str, str, str]) -> None:
    assert is_remote(url)
    assert tuple(parse_address(url)) == expected


@pytest.mark.parametrize(
    "path", ["", "-", "b/x", "/s3/x", "memory://x", "file:///x", "http://x"]
)
def test_other_paths_are_not_remote(path: str) -> None:
    assert not is_remote(path)


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/./x", "s3://b/a\0b"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        parse_address(url)


@pytest.mark.parametrize("url", ["s3://AKIA:hush@b/x", "s3://hush@b/x", "s3://b:hush/x"])
def test_an_address_with_credentials_is_refused_and_not_told(url: str) -> None:
    with pytest.raises(ConfigError, match="give them by the environment") as refusal:
        open_storage(url)

    assert "hush" not in str(refusal.value)
    assert "AKIA" not in str(refusal.value)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")

    storage = open_storage(f"s3://{name.lower()}/x")

    assert isinstance(storage, ObjectStorage)
    assert storage.url == f"s3://{name.lower()}/x"
    assert "http://127.0.0.1:1" in repr(storage.store.config)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "folder", "expected"),
    [
        ("s3://b", "s3://b/out", True),
        ("s3://b/in", "s3://b/in/out", True),
        ("s3://b/in", "s3://b/in", True),
        ("s3://b/in", "s3://b/inner", False),
        ("s3://b/in", "s3://other/in/out", False),
        ("s3://b/in", "gs://b/in/out", False),
        ("s3://b/*.jsonl", "s3://b/out", False),
        ("s3://b/*/*.jsonl", "s3://b/out", True),
        ("s3://b/i*/*.jsonl", "s3://b/out", False),
        ("s3://b/**/*.jsonl", "s3://b/out/deep", True),
    ],
)
def test_an_output_below_the_input_is_seen(given: str, folder: str, *, expected: bool) -> None:
    assert reaches(given, folder) == expected


def test_a_pattern_has_a_root_without_wildcards() -> None:
    assert fixed_root("s3://b/a/b*/c.jsonl") == "s3://b/a"
    assert fixed_root("s3://b/*.jsonl") == "s3://b"
    assert fixed_root("s3://b/a/b") == "s3://b/a/b"
    assert Address("s3", "b", "k").url == "s3://b/k"
