"""Case 34: every choice asked for is kept, in index order; fewer are an error row that keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS, OK, SOME_FAILED, check_whole, run
from tests.cases.compare import Record, by_id
from tests.cases.endpoint import Serve

CASE = INPUTS / "34"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, serve: Serve) -> dict[Any, Record]:
    out = tmp_path_factory.mktemp("run") / "out"
    endpoint = serve(plan=CASE / "plan.json")
    finished = run(CASE / "input.jsonl", out, endpoint=endpoint)
    assert finished.code == SOME_FAILED
    return by_id(check_whole(finished, out, 5))


def texts(record: Record) -> list[str]:
    return [choice["text"] for choice in record["rowmill_choices"]]


def test_all_choices_are_kept_in_order(records: dict[Any, Record]) -> None:
    first = "A:3e23e8160039"

    assert records["n3"]["rowmill_text"] == first
    assert texts(records["n3"]) == [first, f"{first}#1", f"{first}#2"]
    assert len(texts(records["n8"])) == 8
    assert [choice["index"] for choice in records["n8"]["rowmill_choices"]] == list(range(8))
    for id_ in ("n1", "none"):
        assert records[id_]["rowmill_text"]
        assert len(texts(records[id_])) <= 1


def test_fewer_choices_are_an_error_row_that_keeps_them(records: dict[Any, Record]) -> None:
    short = records["short"]

    assert short["rowmill_error_kind"] == "short_answer"
    assert "2 of 3" in short["rowmill_error"]
    assert [(c["index"], c["text"]) for c in short["rowmill_choices"]] == [
        (0, "early"),
        (2, "late"),
    ]


def test_tokens_are_those_of_all_choices_counted_once(records: dict[Any, Record]) -> None:
    assert records["n3"]["rowmill_output_tokens"] == 46


@pytest.mark.parametrize("engine", ["http", "echo"])
def test_choices_of_the_job_and_of_chats_are_kept_alike(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    rows = [
        {"id": "chat", "messages": [{"role": "user", "content": "q"}]},
        {"id": "own", "prompt": "q", "n": 2},
        {"id": "job's", "prompt": "q"},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    endpoint = serve() if engine == "http" else None
    sets = {"sampling.n": 3, "sampling.max_tokens": 20}

    finished = run(source, tmp_path / "out", endpoint=endpoint, sets=sets)
    found = by_id(check_whole(finished, tmp_path / "out", 3))

    assert finished.code == OK
    assert {id_: len(texts(r)) for id_, r in found.items()} == {"chat": 3, "own": 2, "job's": 3}
    for record in found.values():
        assert len(set(texts(record))) == len(texts(record))
        assert record["rowmill_text"] == texts(record)[0]
