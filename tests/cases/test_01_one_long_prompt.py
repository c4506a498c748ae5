"""Case 01: one prompt over the context fails alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import (
    INPUTS,
    SOME_FAILED,
    TINY,
    check_whole,
    job,
    rowmill,
    run,
)
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "01"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
PLANNED = {"engine.tokenizer": str(TINY), "engine.max_model_len": 512}


@pytest.mark.parametrize(
    ("sets", "hits"), [(PLANNED, 11), ({}, 12)], ids=["planned", "left_to_the_endpoint"]
)
def test_long_row_is_an_error_row_and_others_are_answered(
    tmp_path: Path, serve: Serve, sets: dict[str, object], hits: int
) -> None:
    endpoint = serve(max_model_len=512)

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 12)

    assert differences(EXPECTED, records) == []
    assert finished.code == SOME_FAILED
    assert endpoint.stats["most_for_one_body"] == 1
    assert endpoint.hits <= hits


def test_check_names_the_row_before_anything_is_sent(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(max_model_len=512)

    finished = rowmill("check", job(SOURCE, None, endpoint=endpoint, sets=PLANNED))

    assert finished.code == SOME_FAILED
    ((place, kind, sentence),) = finished.told["bad"]
    assert (place, kind) == ("input.jsonl:7", "too_long")
    assert "3012" in sentence
    assert "512" in sentence
    assert endpoint.hits == 0
    assert list(tmp_path.iterdir()) == []


def test_in_process_engine_gives_the_same_outcomes(tmp_path: Path) -> None:
    sets = {"engine.max_model_len": 512, "sampling.max_tokens": 8}

    finished = run(SOURCE, tmp_path / "out", sets=sets)
    records = check_whole(finished, tmp_path / "out", 12)

    expected = [{k: v for k, v in record.items() if k != "text"} for record in EXPECTED]
    assert differences(expected, records) == []


def test_long_rows_at_either_end_and_in_chat_fail_alone(tmp_path: Path) -> None:
    long = "log line; " * 100
    rows: list[dict[str, Any]] = [
        {"id": "first", "prompt": long},
        {"id": "a", "prompt": "a"},
        {"id": "chat", "messages": [{"role": "user", "content": long}]},
        {"id": "old turn", "messages": turns(long, "b", "c")},
        {"id": "ids", "prompt_token_ids": [5] * 600},
        {"id": "b", "messages": turns("a", "b", "c")},
        {"id": "last", "prompt": long},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = {"engine.max_model_len": 512, "sampling.max_tokens": 8}

    finished = run(source, tmp_path / "out", sets=sets)
    records = by_id(check_whole(finished, tmp_path / "out", len(rows)))

    kinds = {id_: record["rowmill_error_kind"] for id_, record in records.items()}
    assert kinds == {row["id"]: None if row["id"] in "ab" else "too_long" for row in rows}
    assert all("512" in records[id_]["rowmill_error"] for id_, kind in kinds.items() if kind)


def turns(*contents: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]


@pytest.mark.slow
def test_real_engine_goes_on_past_the_long_row(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    sets = {"engine.max_model_len": 512, "sampling.max_tokens": 8}

    finished = run(SOURCE, tmp_path / "out", "--engine", "llamacpp", sets=sets)
    records = check_whole(finished, tmp_path / "out", 12)

    failed = [record for record in records if record["rowmill_error"] is not None]
    assert [record["id"] for record in failed] == ["r06"]
    assert "512" in failed[0]["rowmill_error"]
