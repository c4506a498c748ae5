"""Case 40: a vector that no index could take is its row's error, and is written nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cases.command import (
    INPUTS,
    OK,
    REFUSED,
    SOME_FAILED,
    Finished,
    check_whole,
    job,
    rowmill,
    run,
)
from tests.cases.compare import by_id, read_records
from tests.cases.endpoint import Endpoint, Serve

CASE = INPUTS / "40"
EXPECTED = {r["id"]: r["vector"] for r in read_records(CASE / "expected_vectors.jsonl")}
SLOW_TABLES = [
    "jsonl",
    *(pytest.param(f, marks=pytest.mark.slow) for f in ("parquet", "arrow")),
]
WORDS = {
    "nullvec": "8 of the 8 numbers",
    "nanvec": "8 of the 8 numbers",
    "zerovec": "all zeros",
    "dimvec": "5 numbers, all others have 8",
}


@pytest.mark.parametrize("format_", SLOW_TABLES)
def test_bad_vectors_are_row_errors(tmp_path: Path, serve: Serve, format_: str) -> None:
    endpoint = serve(plan=CASE / "plan.json")
    sets = {"kind": "embed", "engine.texts": 1, "output.format": format_}

    finished = run(CASE / "input.jsonl", tmp_path / "out", endpoint=endpoint, sets=sets)
    records = check_whole(finished, tmp_path / "out", 13)

    assert finished.code == SOME_FAILED
    good = {r["id"]: r["rowmill_embedding"] for r in records if r["rowmill_status"] == "ok"}
    assert EXPECTED.keys() == good.keys()
    for id_, vector in EXPECTED.items():
        assert vector == pytest.approx(good[id_], abs=1e-6)
    for id_, words in WORDS.items():
        row = by_id(records)[id_]
        assert ("bad_vector", None) == (row["rowmill_error_kind"], row["rowmill_embedding"])
        assert words in row["rowmill_error"]


@pytest.mark.slow
def test_a_short_vector_in_front_is_not_what_others_are_held_to(
    tmp_path: Path, serve: Serve
) -> None:
    rows = (CASE / "input.jsonl").read_text("utf-8").splitlines(keepends=True)
    source = tmp_path / "turned.jsonl"
    source.write_text("".join([r for r in rows if "give-dim" in r] + rows[:1]), "utf-8")
    sets = {"kind": "embed", "engine.texts": 1, "engine.seats": 1}

    finished = run(source, tmp_path / "out", endpoint=serve(plan=CASE / "plan.json"), sets=sets)
    records = check_whole(finished, tmp_path / "out", 2)

    assert ["error", "ok"] == [r["rowmill_status"] for r in records]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_run_that_goes_on_with_vectors_of_another_length_is_refused_before_a_row_is_asked(
    tmp_path: Path, serve: Serve, *, is_told: bool
) -> None:
    one, more = tmp_path / "one.jsonl", tmp_path / "more.jsonl"
    one.write_text('{"id": 1, "text": "one"}\n')
    more.write_text('{"id": 2, "text": "two"}\n')
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"action": {"type": "embed_dim"}}]))
    sets = {"kind": "embed", "output.format": "parquet", "prompt": "{text}"}
    shorter, out = serve(plan=plan), tmp_path / "out"
    assert run(one, out, endpoint=serve(), sets=sets).code == OK
    if not is_told:  # as where an endpoint did not tell its length at first
        (out / "plan/vectors.json").unlink()

    def appended(endpoint: Endpoint) -> Finished:
        return rowmill("run", job(more, out, "--append", endpoint=endpoint, sets=sets))

    refused = appended(shorter)
    assert refused.code == REFUSED
    told = "vectors of this run have 8 numbers each, those of the engine have 5 now"
    assert told in refused.stderr
    assert [body["input"] for body in shorter.bodies()] == ["a"]  # asked for the length alone
    assert appended(serve()).told["total"] == 2
