"""Case 35: a constraint that cannot be compiled is an error of its row alone, and nobody is asked it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, check_whole, run
from tests.cases.compare import Record, by_id
from tests.cases.endpoint import Endpoint, Serve

CASE = INPUTS / "35"
UNUSABLE = ("bad-type", "text", "null", "bad-ref", "bad-regex", "bad-kind", "not-object")


@pytest.fixture(scope="module")
def endpoint(serve: Serve) -> Endpoint:
    return serve()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> dict[Any, Record]:
    out = tmp_path_factory.mktemp("run") / "out"
    finished = run(CASE / "input.jsonl", out, endpoint=endpoint)
    assert finished.code == SOME_FAILED
    return by_id(check_whole(finished, out, 14))


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_schema_is_an_error_of_its_row(
    records: dict[Any, Record], name: str
) -> None:
    assert records[name]["rowmill_status"] == "error"
    assert records[name]["rowmill_error_kind"] == "invalid"
    assert "response_format" in records[name]["rowmill_error"]


def test_others_are_answered(records: dict[Any, Record]) -> None:
    assert records["after"]["rowmill_text"] == "A:2b19d5178839"
    for name in ("good", "json-object", "empty"):
        assert records[name]["rowmill_status"] == "ok"


def test_none_that_is_unusable_is_sent(records: dict[Any, Record], endpoint: Endpoint) -> None:
    refused = [name for name, row in records.items() if row["rowmill_error_kind"] == "invalid"]

    assert endpoint.stats["hits"] == len(records) - len(refused)
    assert set(UNUSABLE) <= set(refused)
