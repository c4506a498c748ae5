"""Case 03: rows at the context's edge are treated alike, whoever answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.command import INPUTS, SOME_FAILED, TINY, check_whole, run
from tests.cases.compare import by_id, differences, read_records
from tests.cases.endpoint import Endpoint, Serve

CASE = INPUTS / "03"
SOURCE = CASE / "input.jsonl"
EXPECTED = read_records(CASE / "expected.jsonl")
OVER = {
    "b500-m13": (500, 13, 12),
    "b500-m64": (500, 64, 12),
    "short-m100000": (20, 100000, 492),
}
"""Prompt tokens, tokens asked for, tokens that the context of 512 leaves."""
FITS = {"b510-m1": 1, "b511-m1": 1, "b500-m12": 12}

ENGINES = ["http", "echo", "http_untold"]


def settings(engine: str, serve: Serve) -> tuple[Endpoint | None, dict[str, Any]]:
    """`http_untold`: the endpoint alone knows its tokens."""
    if engine == "echo":
        return None, {"engine.max_model_len": 512}
    told = {"engine.tokenizer": str(TINY), "engine.max_model_len": 512}
    return serve(max_model_len=512), told if engine == "http" else {}


@pytest.mark.parametrize("engine", ENGINES)
def test_by_default_a_row_over_the_context_is_an_error_row(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    endpoint, sets = settings(engine, serve)

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 9)

    assert finished.code == SOME_FAILED
    found = by_id(records)
    if endpoint is not None:
        assert differences(EXPECTED, records) == []
        assert endpoint.stats["most_for_one_body"] == 1
    for id_, (prompt, asked, _) in OVER.items():
        numbers = found[id_]["rowmill_error"].replace(",", "")
        assert all(str(n) in numbers for n in (prompt, asked, 512)), numbers
    for id_, prompt in (("b512-m1", 512), ("b513-m1", 513)):
        numbers = found[id_]["rowmill_error"].replace(",", "")
        assert all(str(n) in numbers for n in (prompt, 512)), numbers
    for id_, asked in FITS.items():
        assert found[id_]["rowmill_finish_reason"] == "length"
        assert len(found[id_]["rowmill_text"]) == asked
    assert found["b500-none"]["rowmill_status"] == "ok"
    assert {record["rowmill_attempts"] for record in records} <= {0, 1}


@pytest.mark.parametrize("engine", ["http", "echo"])
def test_clamped_rows_are_answered_and_tell_their_limit(
    tmp_path: Path, serve: Serve, engine: str
) -> None:
    endpoint, sets = settings(engine, serve)
    sets = {**sets, "validate.too_long": "clamp_max_tokens"}

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 9)

    found = by_id(records)
    for id_, (_, _, left) in OVER.items():
        assert found[id_]["rowmill_error"] is None
        assert found[id_]["rowmill_max_tokens"] == left
    for id_ in ("b512-m1", "b513-m1"):
        assert "512" in found[id_]["rowmill_error"]
    if endpoint is not None:
        assert differences(EXPECTED, records) == []
        assert endpoint.hits == 7
        assert found["b500-m13"]["rowmill_text"] == "A:1009f3df7b"
        assert found["short-m100000"]["rowmill_finish_reason"] == "stop"


def test_limit_of_the_job_and_the_row_s_own_are_held_alike(tmp_path: Path) -> None:
    rows = [
        {"id": "job's", "prompt": "b" * 499},
        {"id": "own", "prompt": "b" * 499, "max_tokens": 12},
        {"id": "chat", "messages": [{"role": "user", "content": "b" * 480}]},
        {
            "id": "chat own",
            "messages": [{"role": "user", "content": "b" * 480}],
            "max_tokens": 1,
        },
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = {"engine.max_model_len": 512, "sampling.max_tokens": 13}

    finished = run(source, tmp_path / "out", sets=sets)
    found = by_id(check_whole(finished, tmp_path / "out", 4))

    kinds = {id_: record["rowmill_error_kind"] for id_, record in found.items()}
    assert kinds == {"job's": "too_long", "own": None, "chat": "too_long", "chat own": None}


@pytest.mark.slow
def test_real_engine_holds_the_same_edge(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    rows = [
        {"id": "full", "prompt_token_ids": [30] * 127, "max_tokens": 1},
        {"id": "over", "prompt_token_ids": [30] * 128, "max_tokens": 1},
        {"id": "asks too much", "prompt_token_ids": [30] * 120, "max_tokens": 9},
        {"id": "asks all", "prompt_token_ids": [30] * 120, "max_tokens": 8, "ignore_eos": True},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--engine", "llamacpp")

    finished = run(source, tmp_path / "out", *options, sets={"engine.max_model_len": 128})
    found = by_id(check_whole(finished, tmp_path / "out", 4))

    kinds = {id_: record["rowmill_error_kind"] for id_, record in found.items()}
    assert kinds == {
        "full": None,
        "over": "too_long",
        "asks too much": "too_long",
        "asks all": None,
    }
    assert found["asks all"]["rowmill_output_tokens"] == 8
