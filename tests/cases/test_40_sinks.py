"""Case 40: what a vector store has no place for fails alone, and a second run leaves as many points as the first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cases.command import INPUTS, SOME_FAILED, run
from tests.cases.compare import read_records
from tests.cases.endpoint import Serve
from tests.load.stores import STORES, store

CASE = INPUTS / "40"
BAD = {"nullvec", "zerovec", "dimvec", "nanvec"}
OVER_1000_BYTES = {"arabic", "cjk"}
RIGHT = {
    str(record["id"]): record["vector"]
    for record in read_records(CASE / "expected_vectors.jsonl")
}


def with_numbers(folder: Path) -> Path:
    """The case's rows, with a column `n` that says which one it is."""
    source = folder / "in.jsonl"
    lines = [
        {**json.loads(line), "n": n}
        for n, line in enumerate((CASE / "input.jsonl").read_text("utf-8").splitlines())
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return source


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_rows_a_store_has_no_place_for_fail_alone(
    name: str, tmp_path: Path, serve: Serve
) -> None:
    endpoint = serve(plan=CASE / "plan.json")
    source = with_numbers(tmp_path)
    with store(name) as there:
        sets = {
            "kind": "embed",
            "engine.texts": 1,
            "sink.to": there.address("docs"),
            "sink.metric": "l2",
            "sink.max_text_bytes": 1_000,
            "sink.columns": ["text", "n"],
        }
        finished = run(source, tmp_path / "one", endpoint=endpoint, sets=sets)
        first = there.read("docs")
        hits = endpoint.stats["hits"]
        again = run(source, tmp_path / "two", endpoint=endpoint, sets=sets)

        assert finished.code == again.code == SOME_FAILED
        assert there.read("docs") == first
        assert {key for key, _ in first} == RIGHT.keys() - OVER_1000_BYTES
        for (key, _), (vector, _) in first.items():
            assert np.allclose(np.frombuffer(vector, "<f4"), RIGHT[key], atol=1e-6)
        told = dict(finished.told["not_loaded"])
        assert {f"in.jsonl:{n}" for n in (7, 8)} == told.keys()
        assert "1,040 bytes in UTF-8, limit 1,000" in told["in.jsonl:7"]

        sets["sink.to"], sets["sink.long_text"] = there.address("cut"), "truncate"
        run(source, tmp_path / "three", endpoint=endpoint, sets=sets)

        assert {key for key, _ in there.read("cut")} == RIGHT.keys()
    assert endpoint.stats["hits"] == 3 * hits
