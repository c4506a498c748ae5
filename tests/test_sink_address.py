"""Addresses of vector stores: what they say, and that no password gets past them."""

from __future__ import annotations

import pytest

from rowmill.errors import BadSink, ConfigError
from rowmill.job_file import load_job
from rowmill.sink_address import parse_sink


def test_an_address_is_taken_apart() -> None:
    found = parse_sink("pgvector://me:env:PW@db.example:5433/search?table=own.docs")

    assert ("pgvector", "me", "PW", "db.example", 5433, "/search") == (
        found.store,
        found.user,
        found.password,
        found.host,
        found.port,
        found.path,
    )
    assert {"table": "own.docs"} == found.parameters
    assert found.secret({"PW": "hidden"}) == "hidden"
    with pytest.raises(BadSink, match="`PW` is not set"):
        found.secret({})


def test_a_token_needs_no_user() -> None:
    found = parse_sink("qdrant+https://:env:KEY@q.example?collection=c")

    assert ("qdrant", "https", "", "KEY") == (
        found.store,
        found.transport,
        found.user,
        found.password,
    )


@pytest.mark.parametrize(
    "address",
    [
        "pgvector://me:hunter2-hunter2@h/d?table=t",
        "qdrant+http://h?collection=c&api_key=hunter2-hunter2",
        "milvus+http://root:hunter2-hunter2@h:port/d?collection=c",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_job(None, settings={"source": ["a"], "sink.to": address})

    assert "hunter2" not in str(refused.value)
    assert "env:NAME" in str(refused.value)


@pytest.mark.parametrize("address", ["docs", "pgvector:db", "", "://x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadSink, match="is no address"):
        parse_sink(address)


def test_a_text_is_short_for_where_vectors_go() -> None:
    job = load_job(None, settings={"source": ["a"]}, sets=["sink=lancedb:///a?table=t"])

    assert job.sink.to == "lancedb:///a?table=t"
