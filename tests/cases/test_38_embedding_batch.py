"""Case 38: one bad text among those of a request takes no other with it, and is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.cases.command import INPUTS, OK, SOME_FAILED, TINY, check_whole, run
from tests.cases.compare import Record, by_id, read_records
from tests.cases.endpoint import Serve

CASE = INPUTS / "38"
SOURCE = CASE / "input.jsonl"
EXPECTED: dict[str, list[float]] = {
    r["id"]: r["vector"] for r in read_records(CASE / "expected_vectors.jsonl")
}
BAD = {"e05": "refused", "e13": "invalid", "e31": "invalid"}
EMBED = {"kind": "embed"}


def vectors_of(records: list[Record]) -> dict[str, Any]:
    return {r["id"]: r["rowmill_embedding"] for r in records if r["rowmill_status"] == "ok"}


@pytest.mark.parametrize("texts", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_others_have_their_vectors(tmp_path: Path, serve: Serve, texts: int) -> None:
    endpoint = serve(max_model_len=512, max_batch=16)

    finished = run(
        SOURCE, tmp_path / "out", endpoint=endpoint, sets={**EMBED, "engine.texts": texts}
    )
    records = check_whole(finished, tmp_path / "out", 32)

    assert finished.code == SOME_FAILED
    found = vectors_of(records)
    assert EXPECTED.keys() == found.keys()
    for id_, vector in EXPECTED.items():
        assert vector == pytest.approx(found[id_], abs=1e-6)
    failed = {r["id"]: r["rowmill_error_kind"] for r in records if r["id"] not in found}
    assert BAD == failed
    assert all(by_id(records)[id_]["rowmill_embedding"] is None for id_ in BAD)
    assert "1501 tokens, the limit is 512" in by_id(records)["e05"]["rowmill_error"]
    sent = [request["body"] for request in endpoint.requests()]
    assert len(sent) == len(set(sent)) <= 20


@pytest.mark.slow
def test_table_has_a_list_of_one_length(tmp_path: Path, serve: Serve) -> None:
    endpoint = serve(max_model_len=512)

    run(SOURCE, tmp_path / "o", endpoint=endpoint, sets={**EMBED, "output.format": "parquet"})

    table = pq.read_table(tmp_path / "o" / "results" / "part-00000.parquet")
    assert "fixed_size_list<element: float>[8]" == str(
        table.schema.field("rowmill_embedding").type
    )
    assert 3 == table["rowmill_embedding"].null_count


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["truncate_right", "chunk"])
def test_what_does_not_fit_is_cut_or_parted(tmp_path: Path, serve: Serve, policy: str) -> None:
    # The endpoint counts a token more than the tokenizer makes of a text that is sent as text.
    endpoint = serve(max_model_len=512)
    own = {"engine.tokenizer": str(TINY), "engine.max_model_len": 512}
    sets = {**EMBED, **own, "validate.too_long": policy}

    finished = run(SOURCE, tmp_path / "out", endpoint=endpoint, sets=sets)
    row = by_id(check_whole(finished, tmp_path / "out", 32))["e05"]

    if policy == "chunk":
        bounds = [(chunk["start"], chunk["stop"]) for chunk in row["rowmill_chunks"]]
        assert [(0, 510), (510, 1020), (1020, 1500)] == bounds
        assert all(len(chunk["embedding"]) == 8 for chunk in row["rowmill_chunks"])
        assert row["rowmill_embedding"] is None
    else:
        assert (1501, "length") == (row["rowmill_cut_from"], row["rowmill_finish_reason"])
        assert len(row["rowmill_embedding"]) == 8
    assert finished.code == SOME_FAILED  # null and empty


@pytest.mark.slow
def test_texts_in_all_scripts_arrive(tmp_path: Path, serve: Serve) -> None:
    """Case 63, for texts to embed."""
    source = INPUTS / "63" / "input_escaped.jsonl"
    endpoint = serve()

    finished = run(
        source, tmp_path / "out", endpoint=endpoint, sets={**EMBED, "text": "prompt"}
    )
    records = check_whole(finished, tmp_path / "out", 14)

    assert finished.code == OK
    (body,) = [b for b in endpoint.bodies() if isinstance(b["input"], list)]
    raw = read_records(INPUTS / "63" / "input.jsonl")
    assert sorted(r["prompt"] for r in raw) == sorted(body["input"])
    assert [r["prompt"] for r in raw] == [r["prompt"] for r in records]


@pytest.mark.slow
def test_tables_of_many_types_are_embedded(tmp_path: Path, serve: Serve) -> None:
    """Case 26, for texts to embed."""
    sets = {**EMBED, "text": "prompt", "output.vectors": "float16"}

    finished = run(INPUTS / "26" / "drift", tmp_path / "o", endpoint=serve(), sets=sets)
    records = check_whole(finished, tmp_path / "o", 10)

    assert finished.code == OK
    assert {8} == {len(r["rowmill_embedding"]) for r in records}
    schemas = [pq.read_schema(part) for part in (tmp_path / "o" / "results").iterdir()]
    field = schemas[0].field("rowmill_embedding")
    assert "fixed_size_list<element: halffloat>[8]" == str(field.type)
